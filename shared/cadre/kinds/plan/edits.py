"""Edits of a plan by a person: steps that have not begun are added, changed and dropped, one by one or all at once."""

from typing import Any

import msgspec

from cadre.engine.edits import EditNotAllowed
from cadre.kinds.plan.records import PlanItem
from cadre.kinds.plan.section import PlanStep
from cadre.kinds.plan.steps import PlanError, as_step, as_steps, numbered

_MOST_EDITED = 1_000
"""Steps of a plan that is edited; `most` of the agent's section is held to its model alone."""


def edited_items(items: list[PlanItem], operations: list[dict[str, Any]]) -> list[PlanItem]:
    """The plan after the edit. Raises EditNotAllowed.

    Operations are `{op: add, step: {…}}`, `{op: change, step: number, …its new keys}`, `{op: drop, step: number}` and
    `{op: replace, steps: […]}`, which says all of the plan, the steps begun as they are.
    """
    begun = [one for one in items if one.state != "pending"]
    pending = [one.plan for one in items if one.state == "pending"]
    try:
        for operation in operations:
            pending = _after(begun, pending, operation)
        before, taken = _numbers(begun)
        steps = numbered(pending, _MOST_EDITED, before=before, taken=[*before, *taken])
    except PlanError as error:
        raise EditNotAllowed(str(error)) from error
    return [*begun, *(PlanItem(plan=step) for step in steps)]


def _numbers(begun: list[PlanItem]) -> tuple[list[int], list[int]]:
    """Of steps that others may need, and of those that they may not."""
    before = [one.step for one in begun if one.state in ("running", "done", "failed")]
    return before, [one.step for one in begun if one.step not in before]


def _after(begun: list[PlanItem], pending: list[PlanStep], operation: dict[str, Any]) -> list[PlanStep]:
    match operation:
        case {"op": "add", "step": dict() as step, **others} if not others:
            added = as_step(step, "that is added")
            return [*pending, added if added.needs is not None else msgspec.structs.replace(added, needs=[])]
        case {"op": "change", "step": int() as number, **fields}:
            old = _pending(begun, pending, number)
            written = {**msgspec.to_builtins(old), **fields, "step": number}
            return [as_step(written, number) if one is old else one for one in pending]
        case {"op": "drop", "step": int() as number, **others} if not others:
            old = _pending(begun, pending, number)
            return [one for one in pending if one is not old]
        case {"op": "replace", "steps": list() as steps, **others} if not others:
            return _replaced(begun, steps)
        case _:
            raise EditNotAllowed(f"no such operation: {operation}; `op` is add, change, drop or replace")


def _pending(begun: list[PlanItem], pending: list[PlanStep], number: int) -> PlanStep:
    if any(one.step == number for one in begun):
        raise EditNotAllowed(
            f"step {number} has begun already: it cannot be changed any more", "edit-too-late"
        )
    found = next((one for one in pending if one.step == number), None)
    if found is None:
        raise EditNotAllowed(f"there is no step {number}")
    return found


def _replaced(begun: list[PlanItem], written: list[Any]) -> list[PlanStep]:
    """The steps that are to be done, of a whole plan; those that have begun must stand in it as they are."""
    steps = [PlanStep(task=step) if isinstance(step, str) else step for step in as_steps(written)]
    named = {step.step: step for step in steps if step.step}
    for one in begun:
        mine = named.get(one.step)
        if one.state == "replaced" and mine is None:
            continue
        if mine is None or _plain(mine) != _plain(one.plan):
            raise EditNotAllowed(
                f"step {one.step} has begun already: it cannot be changed any more", "edit-too-late"
            )
    left = [step for step in steps if step.step not in {one.step for one in begun}]
    return [step if step.needs is not None else msgspec.structs.replace(step, needs=[]) for step in left]


def _plain(step: PlanStep) -> PlanStep:
    return msgspec.structs.replace(step, needs=sorted(set(step.needs or [])))
