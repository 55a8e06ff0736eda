"""Fold events and edits by a person into a run's plan."""

from collections.abc import Iterable
from typing import Any

import msgspec

from cadre.engine.kind import EditNotAllowed
from cadre.journal import events as ev
from cadre.journal.parts import JournalEvent
from cadre.journal.run import ActionStep, Phase, Run, Step
from cadre.kinds.plan.records import (
    ItemState,
    PlanDone,
    PlanItem,
    PlanMade,
    PlanNote,
    PlanRefused,
    PlanState,
    PlanStepFinished,
    PlanStepStarted,
)
from cadre.kinds.plan.section import PlanStep
from cadre.kinds.plan.steps import PlanError, as_step, as_steps, numbered

EXECUTING = "execute"
"""Name of the step of a run in which the steps of its plan are carried out."""

APPROVE = "approve"
"""Stage of a run whose plan waits for a person."""


RESULT = "result"
"""Stage of a run whose plan is done, while the answer is made of its result."""


def state_of(run: Run) -> PlanState:
    """The kind's state of the run; an empty one before it has begun."""
    return run.own if isinstance(run.own, PlanState) else PlanState()


def fold_plan(run: Run, event: JournalEvent) -> None:
    """Make the event true of the kind's part of the run."""
    if isinstance(event, ev.RunAccepted):
        run.own = resumed(event.prefix)
        return
    if isinstance(event, PlanRefused):
        # Of a call that no model has answered nothing else says that it is over.
        run.model, run.deferral, run.phase = None, None, Phase.ACTING
    state = run.own = after(state_of(run), event)
    if run.current is not None:
        run.current.own = PlanNote(stage=state.stage, items=state.items, version=state.version)


def resumed(prefix: Iterable[Step]) -> PlanState:
    """Return where a fork begins: with the plan at the end of the last step that it takes over."""
    notes = [step.own for step in prefix if isinstance(step, ActionStep) and isinstance(step.own, PlanNote)]
    if not notes:
        return PlanState()
    last = notes[-1]
    items = [msgspec.structs.replace(one, state="pending") if one.state == "running" else one for one in last.items]
    return PlanState(items=items, version=last.version, stage=last.stage)


def after(state: PlanState, event: JournalEvent) -> PlanState:
    """The state after an event."""
    replaced = msgspec.structs.replace
    match event:
        case ev.StepStarted(name=name):
            if name == EXECUTING:
                return replaced(state, stage=name, tries=0, complaint="")
            begins = name == "replan" and not state.complaint
            return replaced(state, stage=name, replans=state.replans + begins)
        case PlanMade():
            items = with_plan(state.items, event)
            is_new = event.origin != "edit"  # the edit itself has counted
            return replaced(state, items=items, version=state.version + is_new, tries=0, complaint="")
        case PlanRefused():
            return replaced(state, tries=state.tries + 1, complaint=event.reason)
        case PlanStepStarted(step=step):
            items = changed(state.items, step, state="running")
            return replaced(state, items=items, opening=[*state.opening, step])
        case ev.ToolCalled() | ev.DelegateStarted() | ev.ApprovalRequested() | ev.CallRefused():
            return _opened(state, event)
        case ev.ToolAnswered(call=call, output=output) | ev.DelegateFinished(call=call, output=output):
            found = next((one for one in state.items if one.call == call and one.state == "running"), None)
            return replaced(state, items=changed(state.items, found.step, result=output)) if found else state
        case PlanStepFinished(step=step, error=error):
            ending: ItemState = "done" if error is None else "failed"
            return replaced(state, items=changed(state.items, step, state=ending, error=error))
        case PlanDone(result=result):
            return replaced(state, result=result, stage=RESULT)
        case ev.EditApplied(operations=operations):
            items = edited_items(state.items, operations)
            return replaced(state, items=items, version=state.version + 1)
        case _:
            return state


def _opened(
    state: PlanState, event: ev.ToolCalled | ev.DelegateStarted | ev.ApprovalRequested | ev.CallRefused
) -> PlanState:
    """The call is that of the first step which waits for its call; any other belongs to no step of the plan."""
    if isinstance(event, ev.ApprovalRequested) and event.kind == "question":
        return msgspec.structs.replace(state, stage=APPROVE)
    if not state.opening:
        return state
    step, *others = state.opening
    items = changed(state.items, step, call=event.call)
    return msgspec.structs.replace(state, items=items, opening=others)


def changed(items: list[PlanItem], step: int, **fields: Any) -> list[PlanItem]:
    """The items with one of them changed."""
    return [msgspec.structs.replace(one, **fields) if one.step == step else one for one in items]


def with_plan(items: list[PlanItem], made: PlanMade) -> list[PlanItem]:
    """Return the items with the steps to do from now on. When a new plan is made, an item that has failed is tried
    again if its number is used again; otherwise it is replaced."""
    again = {step.step for step in made.steps}
    kept = [one for one in items if one.state != "pending" and one.step not in again]
    if made.origin == "replan":
        kept = [msgspec.structs.replace(one, state="replaced") if one.state == "failed" else one for one in kept]
    return [*kept, *(PlanItem(plan=step) for step in made.steps)]


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
        raise EditNotAllowed(f"step {number} has begun already: it cannot be changed any more", "edit-too-late")
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
            raise EditNotAllowed(f"step {one.step} has begun already: it cannot be changed any more", "edit-too-late")
    left = [step for step in steps if step.step not in {one.step for one in begun}]
    return [step if step.needs is not None else msgspec.structs.replace(step, needs=[]) for step in left]


def _plain(step: PlanStep) -> PlanStep:
    return msgspec.structs.replace(step, needs=sorted(set(step.needs or [])))
