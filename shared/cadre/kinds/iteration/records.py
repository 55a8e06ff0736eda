"""Declare what the kinds whose model answers with thoughts and a tool have in common."""

from functools import partial
from typing import Any

import msgspec

from cadre.errors import SpecError
from cadre.journal.parts import Description, JournalEvent
from cadre.spec.expressions import check_template
from cadre.spec.kinds import Facts, Section
from cadre.spec.names import check_bounds

FINISH = "finish"
"""The tool that ends the work; so does an empty name."""


class IterationSection(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The fields that the sections of these kinds have in common."""

    goals: list[str] = []
    """The goals to reach; the task of a run is one more goal."""
    constraints: list[str] = []
    iterations: int | None = None
    """The number of model calls that a run may take, in place of `limits.max_steps`."""
    think: bool = True
    """True if the model may call `think`."""


class JsonFormRefused(JournalEvent, frozen=True, tag="iteration.form_refused"):
    """The endpoint refuses the form in which JSON was asked for: from now on it is asked for in `form`."""

    form: str
    reason: str = ""

    def describe(self) -> Description:
        return Description("")


ITERATION_TEMPLATES = {
    "iteration.time": ("now", ""),
    "iteration.next": ("", ""),
    "iteration.result": ("name text", ""),
    "iteration.think": ("question", "goals found"),
}
"""Templates of prompt files that these kinds share, with the variables that they must show and may use."""

SYSTEM_TERMS = "goals constraints custom_instructions tools managed_agents"


def facts(spec: Any, section: IterationSection) -> Facts:
    """Return what follows from a spec: a schema where each answer is held to one (`model.structured`, or `calls:
    schema`).
    """
    form = spec.model.structured
    held = form == "schema" or (form == "auto" and spec.model.calls == "schema")
    return Facts(
        spec.kind,
        capabilities=frozenset({"json_schema"} if held else ()),
        max_steps=section.iterations,
        ending=FINISH,
        has_variables=True,
        writes_calls=False,
        terms=partial(prompt_terms, section),
    )


def prompt_terms(section: IterationSection) -> dict[str, Any]:
    """Values of the variables of the system prompt."""
    return {
        **{key: value for key, value in msgspec.structs.asdict(section).items() if isinstance(value, list)},
        "think": "think" if section.think else "",
    }


def texts_of(kind: str, section: IterationSection) -> list[tuple[str, Any]]:
    """Lists of texts by their keys in the agent's file."""
    fields = msgspec.structs.asdict(section)
    return [(f"{kind}.{key}", value) for key, value in fields.items() if isinstance(value, list)]


def check_section(spec: Any, kind: str, section: IterationSection) -> None:
    """Raise SpecError for a section that cannot hold."""
    check_bounds(spec.name, [(f"{kind}.iterations", section.iterations, 1)])
    for key, texts in texts_of(kind, section):
        if not all(isinstance(text, str) and text.strip() for text in texts):
            raise SpecError(f"{key} holds an empty one: write each as a sentence", agent=spec.name)
    if spec.kind != kind:
        return
    for key, written in (("instructions", spec.instructions), *texts_of(kind, section)):
        try:
            check_template(written)
        except ValueError as error:
            raise SpecError(str(error), key=key, agent=spec.name) from error
    taken = {FINISH, *(["think"] if section.think else [])}
    names = [name for name in [*spec.tools, *map(str, spec.team)] if name.casefold() in taken]
    if names:
        raise SpecError(f"{names[0]!r} is a tool of kind {kind} itself: name yours otherwise", agent=spec.name)
