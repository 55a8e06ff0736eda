"""Fold events into a run's place in its workflow, and find the outcome that a closed call gives its step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cadre.engine.calls.fold_calls import failure_of
from cadre.journal import events as ev
from cadre.journal.parts import JournalEvent
from cadre.journal.run import ActionStep, CallState, Run
from cadre.kinds.workflow.records import (
    AnswerParsed,
    Ending,
    FailedStep,
    ItemsListed,
    Undoable,
    UndoBegun,
    WorkflowState,
    WorkflowStepFinished,
    WorkflowStepNote,
)
from cadre.kinds.workflow.section import EachAction, ParallelAction, action_of, workflow_of
from cadre.protocol.messages import ErrorInfo

PERSONS_WORD = {"approved": "yes", "corrected": "yes", "rejected": "no", "expired": "expired"}
"""The label that a verdict is."""


def state_of(run: Run) -> WorkflowState:
    """The kind's state of the run; an empty one before it has begun."""
    return run.own if isinstance(run.own, WorkflowState) else WorkflowState()


def fold_workflow(run: Run, event: JournalEvent, n: int, at: float) -> None:
    """Make the event true of the kind's part of the run."""
    state = state_of(run)
    if isinstance(event, ev.RunAccepted):
        run.own = resumed(event.prefix) if event.prefix else WorkflowState()
        return
    if isinstance(event, ev.DelegateFinished) and not _counts(run, event.call):
        return
    undo = ""
    if isinstance(event, WorkflowStepFinished) and run.spec is not None:
        undo = workflow_of(run.spec).steps[event.name].undo
    state = after(state, event, at, undo)
    run.own = state = _with_parts(run, state)
    if run.current is not None and isinstance(event, ev.StepStarted):
        run.current.own = WorkflowStepNote(name=event.name, attempt=event.attempt)
    elif isinstance(event, WorkflowStepFinished) and run.current is not None:
        result = None if event.error is not None else state.value
        run.current.own = WorkflowStepNote(name=event.name, attempt=state.attempt, result=result, next=event.next)


def _with_parts(run: Run, state: WorkflowState) -> WorkflowState:
    """The state with what the parts of the step in work have given so far, if it has parts."""
    if run.current is None or not state.step:
        return state
    action = action_of(workflow_of(run.spec).steps[state.step])
    if not isinstance(action, EachAction | ParallelAction):
        return state
    return msgspec.structs.replace(state, value=together(action, run.current.calls, state.answers))


def _counts(run: Run, call: str) -> bool:
    """Return whether a report is an answer that the step in work has waited for."""
    found = run.call(call)
    return found is not None and found.observation is not None and found.error is None


def resumed(prefix: list[Any]) -> WorkflowState:
    """Return where a fork begins: the steps that it takes over have their results."""
    state = WorkflowState()
    for step in prefix:
        note = step.own if isinstance(step, ActionStep) and not step.interrupted else None
        if isinstance(note, WorkflowStepNote):
            visits = {**state.visits, note.name: state.visits.get(note.name, 0) + 1}
            state = msgspec.structs.replace(state, visits=visits, step=note.next)
            if step.error is None:
                results = {**state.results, note.name: note.result}
                state = msgspec.structs.replace(state, results=results, last=note.name)
    return state


def after(state: WorkflowState, event: JournalEvent, at: float, undo: str = "") -> WorkflowState:
    """The state after an event; `undo` is the step that makes up for the one which the event leaves."""
    match event:
        case ev.StepStarted(name=name, attempt=attempt) if name:
            visits = state.visits
            if attempt == 1:
                visits = {**visits, name: visits.get(name, 0) + 1}
            return msgspec.structs.replace(
                state,
                step=name,
                attempt=attempt,
                started_at=at if attempt == 1 else state.started_at,
                visits=visits,
                value=None,
                items=[],
                answers={},
                complaint=state.complaint if attempt > 1 else "",
            )
        case ev.ToolAnswered(error=error, output=output):
            # A check's result is a word on the answer, and no step's.
            return msgspec.structs.replace(state, value=output) if error is None else state
        case ev.DelegateFinished():
            answers = {**state.answers, event.call: event.output}
            return msgspec.structs.replace(state, value=event.output, answers=answers)
        case ev.ApprovalDecided():
            return msgspec.structs.replace(state, value=word_of(event))
        case AnswerParsed(value=value):
            return msgspec.structs.replace(state, value=value)
        case ItemsListed(items=items):
            return msgspec.structs.replace(state, items=items)
        case WorkflowStepFinished():
            return _left(state, event, undo)
        case UndoBegun():
            ending = Ending(state=event.state, error=event.error, undone=state.undo[-1], failed=event.unsure)
            return msgspec.structs.replace(state, ending=ending, undo=state.undo[:-1])
        case _:
            return state


def not_undone(run: Run, state: WorkflowState) -> list[str]:
    """Return the steps that the run has done, or may have done, and not made up for, the latest first."""
    left = [entry.step for entry in reversed(state.undo)]
    if state.ending is None:
        return [*unsure_steps(run, state, run.open_calls()), *left]
    at_work = [state.ending.undone.step] if state.ending.undone is not None else []
    return [*state.ending.failed, *at_work, *left]


def unsure_steps(run: Run, state: WorkflowState, open_calls: Sequence[CallState]) -> list[str]:
    """Return the step that may have taken effect although its result is missing, if it has an `undo`: one whose calls
    are out, or the latest that has failed if it was interrupted."""
    steps = workflow_of(run.spec).steps
    found = state.step if any(call.opened for call in open_calls) else ""
    if not found and state.error is not None and state.error.code == "interrupted":
        found = state.error.step
    is_known = any(entry.step == found for entry in state.undo)
    return [found] if found and steps[found].undo and not is_known else []


def together(action: EachAction | ParallelAction, calls: Sequence[CallState], answers: dict[str, Any]) -> Any:
    """Return what the parts gave: a list in the order of the items, or values by branch; None for one that gave
    nothing.
    """
    found = [answers.get(call.id) for call in calls]
    return found if isinstance(action, EachAction) else dict(zip(action.branches, found, strict=False))


def word_of(event: ev.ApprovalDecided) -> dict[str, Any]:
    """A person's word, as templates read it."""
    return {"answer": PERSONS_WORD[event.verdict], "feedback": event.feedback, "by": event.sender}


def _left(state: WorkflowState, event: WorkflowStepFinished, undo: str) -> WorkflowState:
    if event.error is not None:
        if event.retry:
            return msgspec.structs.replace(state, complaint=event.error.message)
        failed = FailedStep.of(event.name, event.error)
        return _next_undo(msgspec.structs.replace(state, error=failed), event)
    results = {**state.results, event.name: state.value}
    done = msgspec.structs.replace(state, results=results, last=event.name, complaint="")
    if undo and state.ending is None:
        entry = Undoable(step=event.name, undo=undo, result=state.value)
        done = msgspec.structs.replace(done, undo=[*state.undo, entry])
    return _next_undo(done, event)


def _next_undo(state: WorkflowState, event: WorkflowStepFinished) -> WorkflowState:
    """Return what is made up for next, where a chain of steps that made up for something is at its end."""
    ending = state.ending
    if ending is None or event.next:
        return state
    failed = ending.failed
    if event.error is not None and ending.undone is not None:
        failed = [*failed, ending.undone.step]
    ending = msgspec.structs.replace(ending, failed=failed, undone=state.undo[-1] if state.undo else None)
    return msgspec.structs.replace(state, ending=ending, undo=state.undo[:-1])


class StepOutcome(NamedTuple):
    """The outcome of a step: a value, or an error."""

    value: Any = None
    error: ErrorInfo | None = None
    label: str = ""
    """The label of the way that it leads."""
    target: str = ""
    """The step that this way leads to, as far as that is settled; "" is the end."""


def outcome_of(call: CallState, closed: ev.AnyEvent) -> StepOutcome:
    """Return the call's value or error. A member that used up its steps and found nothing has failed."""
    match closed:
        case ev.ToolAnswered(output=output, error=None):
            return StepOutcome(output)
        case ev.ToolAnswered(error=error):
            return StepOutcome(error=error)
        case ev.DelegateFinished() as report:
            failure = failure_of(report)
            if report.state == "max_steps_error" and report.output is None:
                failure = ErrorInfo("max-steps", "It used up its steps and found nothing.")
            if failure is None:
                return StepOutcome(report.output)
            return StepOutcome(error=report.error or failure)
        case ev.ApprovalDecided() if call.kind == "question":
            word = word_of(closed)
            return StepOutcome(word, label=word["answer"])
        case ev.CallRefused(error=refusal):
            return StepOutcome(error=refusal)
        case _:
            return StepOutcome(error=call.error)
