"""What events make of a run's plan."""

from collections.abc import Iterable
from typing import Any

import msgspec

from cadre.journal import events as ev
from cadre.journal.parts import JournalEvent
from cadre.journal.run import Phase, Run
from cadre.journal.steps import ActionStep, Step
from cadre.kinds.plan.edits import edited_items
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
    """Makes the event true of the kind's part of the run."""
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
    """Where a fork begins: with the plan at the end of the last step that it takes over."""
    notes = [step.own for step in prefix if isinstance(step, ActionStep) and isinstance(step.own, PlanNote)]
    if not notes:
        return PlanState()
    last = notes[-1]
    items = [
        msgspec.structs.replace(one, state="pending") if one.state == "running" else one for one in last.items
    ]
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
    """The items with the steps that are to be done from now on. When a plan is made anew, one that has failed is
    tried again where its number is used again, else it is replaced."""
    again = {step.step for step in made.steps}
    kept = [one for one in items if one.state != "pending" and one.step not in again]
    if made.origin == "replan":
        kept = [
            msgspec.structs.replace(one, state="replaced") if one.state == "failed" else one for one in kept
        ]
    return [*kept, *(PlanItem(plan=step) for step in made.steps)]
