"""The section `solution` of an agent's file: activities without a tool, and who agrees to what is proposed."""

from typing import Any, Literal

import msgspec

from cadre.errors import SpecError
from cadre.spec.answer_schema import check_schema
from cadre.spec.kinds import Section
from cadre.spec.names import check_bounds, check_name
from cadre.spec.policy import NEVER, check_policy, names_in

KIND = "solution"
"""The name of the kind, and of its section."""

JUDGED = frozenset({"calls", "names", "output", "task"})
"""The variables of a policy over a whole solution."""

_RESERVED = {"final_answer", KIND}


class ImplicitActivity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that no tool does: the model itself writes the outcome beside the call."""

    description: str = ""
    arguments: dict[str, Any] = {}
    """JSON Schema of its arguments, an object; {}: it takes none."""
    outcome: dict[str, Any] = {}
    """JSON Schema of its outcome; {}: any text."""


class SolutionSpec(Section, frozen=True, kw_only=True, tag=KIND, omit_defaults=True):
    """How an agent of kind `solution` works."""

    implicit: dict[str, ImplicitActivity] = {}
    """By name: what the model may note as done without a tool."""
    approve: str = NEVER
    """Which solutions wait for a person as a whole: `never`, `always` (those with calls), or `when:` an expression over
    `calls`, `names`, `output` and `task`. What a person has agreed to is held by no other policy."""
    at_expiry: Literal["reject", "approve", "end"] = "reject"
    """What becomes of one that nobody decided on within `approval_seconds`."""
    tries: int = 3
    """How many solutions in a row may be unreadable or unfit before the run ends in error."""


def solution_of(spec: Any) -> SolutionSpec:
    """The section of an agent's spec."""
    return spec.section(SolutionSpec) or SolutionSpec()


def prompt_terms(spec: Any) -> dict[str, Any]:
    """What the model is told of each implicit activity, one line each."""
    return {"implicit": [_told_of(name, one) for name, one in solution_of(spec).implicit.items()]}


def _told_of(name: str, activity: ImplicitActivity) -> str:
    taken = ", ".join(activity.arguments.get("properties", {})) or "nothing"
    return f"{name}: {' '.join(activity.description.split())} Arguments: {taken}.".replace(":  ", ": ")


def check(spec: Any) -> None:
    """Raises SpecError for a section that cannot hold."""
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
