"""What the kind `solution` declares and writes down: each solution as it was proposed, and how one is asked for."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from cadre.engine.context.observation import observation_of
from cadre.journal.parts import Description, JournalEvent, KindState, KindStep, Mark
from cadre.kinds.purposes import STEPWISE
from cadre.kinds.solution import section
from cadre.spec.kinds import Facts, KindDeclaration, PromptFile


class ProposedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a solution, as the model proposed it."""

    name: str
    arguments: dict[str, Any] = {}
    implicit: bool = False
    """No tool runs it: the model gave its outcome."""
    outcome: Any = None


def proposed_lines(calls: Sequence[ProposedCall], output: Any) -> list[str]:
    """Return what is proposed, a line for each call and for the output."""
    made = [call for call in calls if not call.implicit]
    lines = [f"proposes {n}: {call.name} {observation_of(call.arguments)}" for n, call in enumerate(made, 1)]
    lines += [
        f"says of itself: {call.name} {observation_of(call.arguments)} -> {observation_of(call.outcome)}"
        for call in calls
        if call.implicit
    ]
    if output is not None:
        lines.append(f"output so far: {observation_of(output)}" if calls else "proposes an answer")
    return lines


class SolutionProposed(JournalEvent, frozen=True, tag="solution.proposed"):
    """A solution, before anything of it is run. Implicit calls have their outcome, what becomes of others follows."""

    step: int
    calls: list[ProposedCall]
    output: Any = None

    def describe(self) -> Description:
        mark = Mark("propose_solution", "solution", self.step, ", ".join(call.name for call in self.calls))
        return Description("", proposed_lines(self.calls, self.output), marks=[mark])


class FormRefused(JournalEvent, frozen=True, tag="solution.form_refused"):
    """The endpoint refuses the form in which solutions were asked for: from now on they are asked for in `form`."""

    form: str
    reason: str = ""

    def describe(self) -> Description:
        return Description(
            "", [f"the endpoint refuses the form of solutions; asked for from now on: {self.form}"]
        )


class SolutionState(KindState, kw_only=True, tag=section.KIND, omit_defaults=True):
    """What a run keeps between its solutions."""

    form: str = ""
    """How solutions are asked for, once the endpoint has refused a form; "": as the spec says."""
    misses: int = 0
    """Solutions in a row, the latest among them, that could not be taken."""


class SolutionStep(KindStep, kw_only=True, tag=section.KIND, omit_defaults=True):
    """The solution of a step, and what a person made of it."""

    calls: list[ProposedCall] = []
    output: Any = None
    review: str = ""
    """What a person changed or said, as the model reads it."""

    def lines(self) -> list[str]:
        return [*proposed_lines(self.calls, self.output), *([self.review] if self.review else [])]


DECLARATION = KindDeclaration(
    name=section.KIND,
    behavior={1: "cadre.kinds.solution.kind:SOLUTION"},
    purposes=STEPWISE,
    prompts={
        section.KIND: PromptFile(
            must="custom_instructions tools managed_agents implicit",
            may="output_schema",
            lists=("implicit",),
            templates={"solution.form": ("schema", "")},
            like="tool_calling",
        )
    },
    records=(SolutionProposed, FormRefused, SolutionState, SolutionStep, section.SolutionSpec),
    check=section.check,
    facts=lambda spec: Facts(spec.kind, writes_calls=False, terms=partial(section.prompt_terms, spec)),
)
