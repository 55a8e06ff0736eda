"""Plans as they are given or written: read, numbered, and checked against each other."""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Any

import msgspec

from cadre.kinds.plan.section import VALUES, PlanStep
from cadre.spec.expressions import check_template

_RESULT = re.compile(r"step_(\d+)")


class PlanError(Exception):
    """Steps that do not form a plan; the text gives the reason, for their author."""


def as_steps(values: Any) -> list[str | PlanStep]:
    """Steps from JSON: texts, or objects with the keys of a step. Raises PlanError."""
    if not isinstance(values, list):
        raise PlanError("A plan is a list of steps")
    return [value if isinstance(value, str) else as_step(value, at) for at, value in enumerate(values, 1)]


def as_step(value: Any, place: int | str) -> PlanStep:
    """One step from JSON. Raises PlanError."""
    if isinstance(value, dict) and (unknown := value.keys() - {*PlanStep.__struct_fields__}):
        keys = ", ".join(PlanStep.__struct_fields__)
        raise PlanError(f"Step {place} has the unknown key {min(map(str, unknown))!r}; the keys are {keys}")
    try:
        filled = {key: one for key, one in value.items() if one is not None} if isinstance(value, dict) else value
        return msgspec.convert(filled, PlanStep, strict=False)
    except msgspec.ValidationError as error:
        raise PlanError(f"Step {place}: {error}") from error


def numbered(
    steps: Sequence[str | PlanStep], most: int, *, before: Collection[int] = (), taken: Collection[int] = ()
) -> list[PlanStep]:
    """The steps with their numbers, and all that each needs: what it names, and what its templates read.

    `before` are the steps that are done or under way already, `taken` the numbers that may not be used again.
    Raises PlanError.
    """
    written = [PlanStep(task=step) if isinstance(step, str) else step for step in steps]
    free = count(max((*before, *taken, *(step.step for step in written)), default=0) + 1)
    found = [msgspec.structs.replace(step, step=step.step or next(free)) for step in written]
    numbers = [step.step for step in found]
    if len(found) + len(before) > most:
        raise PlanError(f"The plan has more than {most} steps")
    for number in numbers:
        if number < 1 or numbers.count(number) > 1 or number in taken:
            raise PlanError(f"Step {number}: give each step a number of its own, from 1, that is not in use yet")
    in_order = all(step.needs is None for step in found)
    found = [
        msgspec.structs.replace(step, needs=_needs(step, numbers[at - 1 : at] if in_order and at else []))
        for at, step in enumerate(found)
    ]
    for step in found:
        for need in step.needs or []:
            if need not in numbers and need not in before:
                raise PlanError(f"Step {step.step} needs step {need}, which is not in the plan")
    _check_order(found)
    return found


def _needs(step: PlanStep, before: Iterable[int]) -> list[int]:
    try:
        names = check_template([step.task, step.details, step.args])
    except ValueError as error:
        raise PlanError(f"Step {step.step}: {error}") from error
    read = set()
    for name in names - {*VALUES}:
        result = _RESULT.fullmatch(name)
        if result is None:
            raise PlanError(
                f"Step {step.step} reads {name!r}; it may read {', '.join(VALUES)}, and results as step_1, step_2 …"
            )
        read.add(int(result[1]))
    return sorted({*(before if step.needs is None else step.needs), *read})


def _check_order(steps: Sequence[PlanStep]) -> None:
    """Raise PlanError where steps need each other in a circle."""
    left = {step.step: set(step.needs or []) for step in steps}
    while left:
        free = [number for number, needs in left.items() if not needs & left.keys()]
        if not free:
            raise PlanError(f"The steps {', '.join(map(str, left))} need each other in a circle")
        for number in free:
            del left[number]
