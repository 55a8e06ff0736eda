"""Declare the kind `solution` and its records: its section, each proposed solution, and how one is asked for."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from cadre.engine.context.text_size import observation_of
from cadre.errors import SpecError
from cadre.journal.parts import Description, JournalEvent, KindState, KindStep, Mark
from cadre.kinds.tool_calling.records import STEPWISE
from cadre.spec.answer_schema import check_schema
from cadre.spec.kinds import Facts, KindDeclaration, PromptFile, Section
from cadre.spec.names import check_bounds, check_name
from cadre.spec.policy import NEVER, check_policy, names_in

KIND = "solution"
"""The name of the kind, and of its section."""

JUDGED = frozenset({"calls", "names", "output", "task"})
"""The variables of a policy over a whole solution."""

_RESERVED = {"final_answer", KIND}


class ImplicitActivity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that no tool does: the model itself writes the outcome together with the call."""

    description: str = ""
    arguments: dict[str, Any] = {}
    """JSON Schema of its arguments, an object; {}: it takes none."""
    outcome: dict[str, Any] = {}
    """JSON Schema of its outcome; {}: any text."""


class SolutionSpec(Section, frozen=True, kw_only=True, tag=KIND, omit_defaults=True):
    """The settings of an agent of kind `solution`."""

    implicit: dict[str, ImplicitActivity] = {}
    """By name: what the model may note as done without a tool."""
    approve: str = NEVER
    """The solutions that wait for a person as a whole: `never`, `always` (those with calls), or `when:` an expression
    over `calls`, `names`, `output` and `task`. What a person has agreed to is held by no other policy."""
    at_expiry: Literal["reject", "approve", "end"] = "reject"
    """What becomes of a solution that was not decided on within `approval_seconds`."""
    tries: int = 3
    """The number of solutions in a row that may be unreadable or unfit before the run ends in error."""


def solution_of(spec: Any) -> SolutionSpec:
    """The section of an agent's spec."""
    return spec.section(SolutionSpec) or SolutionSpec()


def prompt_terms(spec: Any) -> dict[str, Any]:
    """Return the description of each implicit activity for the model, one line each."""
    return {"implicit": [_told_of(name, one) for name, one in solution_of(spec).implicit.items()]}


def _told_of(name: str, activity: ImplicitActivity) -> str:
    taken = ", ".join(activity.arguments.get("properties", {})) or "nothing"
    return f"{name}: {' '.join(activity.description.split())} Arguments: {taken}.".replace(":  ", ": ")


def check(spec: Any) -> None:
    """Raise SpecError for a section that cannot hold."""
    section = solution_of(spec)
    where = "solution"
    check_bounds(spec.name, [("solution.tries", section.tries, 1)])
    try:
        check_policy(section.approve)
        unknown = names_in(section.approve) - JUDGED
    except ValueError as error:
        raise SpecError(str(error), key=f"{where}.approve", agent=spec.name) from error
    if unknown:
        raise SpecError(
            f"it is about {', '.join(sorted(unknown))}; it may be about {', '.join(sorted(JUDGED))}",
            key=f"{where}.approve",
            agent=spec.name,
        )
    taken = {*_RESERVED, *spec.tools, *(str(member) for member in spec.team)}
    for name, activity in section.implicit.items():
        check_name("implicit activity", name)
        if name in taken:
            raise SpecError(
                f"{name} is the name of a tool or a member: choose another",
                key=f"{where}.implicit",
                agent=spec.name,
            )
        for key, schema in (("arguments", activity.arguments), ("outcome", activity.outcome)):
            try:
                check_schema(schema)
            except (TypeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise SpecError(
                    f"is no JSON Schema: {reason}", key=f"{where}.implicit.{name}.{key}", agent=spec.name
                ) from error
        if activity.arguments and activity.arguments.get("type") != "object":
            raise SpecError(
                "must be the schema of an object", key=f"{where}.implicit.{name}.arguments", agent=spec.name
            )


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
    """A solution, before anything of it is run. Implicit calls have their outcome; the outcomes of others follow."""

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
        return Description("", [f"the endpoint refuses the form of solutions; asked for from now on: {self.form}"])


class SolutionState(KindState, kw_only=True, tag=KIND, omit_defaults=True):
    """The state that a run keeps between its solutions."""

    form: str = ""
    """The form in which solutions are asked for, once the endpoint has refused a form; "": as the spec says."""
    misses: int = 0
    """Solutions in a row, the latest among them, that could not be taken."""


class SolutionStep(KindStep, kw_only=True, tag=KIND, omit_defaults=True):
    """The solution of a step, and what a person made of it."""

    calls: list[ProposedCall] = []
    output: Any = None
    review: str = ""
    """The person's changes or words, as the model reads them."""

    def lines(self) -> list[str]:
        return [*proposed_lines(self.calls, self.output), *([self.review] if self.review else [])]


DECLARATION = KindDeclaration(
    name=KIND,
    behavior={1: "cadre.kinds.solution.kind:SOLUTION"},
    purposes=STEPWISE,
    prompts={
        KIND: PromptFile(
            must="custom_instructions tools managed_agents implicit",
            may="output_schema",
            lists=("implicit",),
            templates={"solution.form": ("schema", "")},
            like="tool_calling",
        )
    },
    records=(SolutionProposed, FormRefused, SolutionState, SolutionStep, SolutionSpec),
    check=check,
    facts=lambda spec: Facts(spec.kind, writes_calls=False, terms=partial(prompt_terms, spec)),
)
