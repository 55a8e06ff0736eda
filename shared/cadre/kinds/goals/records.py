"""Declare the kind `goals` and its records."""

from typing import Any

from cadre.journal.parts import Description, JournalEvent, KindState, KindStep
from cadre.kinds.iteration.records import (
    ITERATION_TEMPLATES,
    SYSTEM_TERMS,
    IterationSection,
    JsonFormRefused,
    check_section,
    facts,
)
from cadre.spec.kinds import KindDeclaration, PromptFile

KIND = "goals"


class GoalsSpec(IterationSection, frozen=True, kw_only=True, tag=KIND, omit_defaults=True):
    """The section `goals` of an agent's file."""


class GoalThought(JournalEvent, frozen=True, tag="goals.thought"):
    """The model's thoughts when it chose a tool, as far as they are meant for people who watch."""

    step: int
    tool: str = ""
    text: str = ""
    speak: str = ""

    def describe(self) -> Description:
        said = self.speak or self.text
        return Description("", [f"thinks: {said}"] if said else [])


class ThoughtStep(KindStep, kw_only=True, tag=KIND, omit_defaults=True):
    """A step in which the model thought a question through."""

    question: str = ""
    thought: str | None = None

    def lines(self) -> list[str]:
        found = [f"finds: {self.thought}"] if self.thought else []
        return [f"thinks through: {self.question}", *found] if self.question else []


class GoalsState(KindState, kw_only=True, tag=KIND, omit_defaults=True):
    """The state of a run: what it has learned of its endpoint."""

    form: str = ""
    """The form in which JSON is asked for, once the endpoint has refused a form; "": as the spec says."""


def goals_of(spec: Any) -> GoalsSpec:
    """The section of an agent's spec."""
    return spec.section(GoalsSpec) or GoalsSpec()


DECLARATION = KindDeclaration(
    name=KIND,
    behavior={1: "cadre.kinds.goals.kind:GOALS"},
    prompts={
        KIND: PromptFile(
            must=SYSTEM_TERMS,
            may="think output_schema",
            lists=("goals", "constraints"),
            templates=ITERATION_TEMPLATES,
            like="tool_calling",
            has_short=False,
        )
    },
    purposes={"act": "thinking", "plan": "planning", "think": "thinking a question through"},
    records=(GoalThought, JsonFormRefused, GoalsState, ThoughtStep, GoalsSpec),
    check=lambda spec: check_section(spec, KIND, goals_of(spec)),
    facts=lambda spec: facts(spec, goals_of(spec)),
)
