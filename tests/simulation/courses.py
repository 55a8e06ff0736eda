"""Workflows are walked again next to the product: each step by what the world gave it, and where that had to lead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cadre.journal import events as ev
from cadre.journal.run import Run
from cadre.kinds.workflow.records import AnswerParsed, ItemsListed, UndoBegun, WorkflowStepFinished
from cadre.kinds.workflow.section import (
    Action,
    AgentAction,
    ApproveAction,
    ChooseAction,
    EachAction,
    EndAction,
    ParallelAction,
    ToolAction,
    WaitAction,
    WorkflowStep,
    action_of,
    attempts_of,
    workflow_of,
)
from cadre.protocol.messages import ErrorInfo
from cadre.spec.durations import seconds_of
from cadre.spec.expressions import holds
from simulation.history import Chronicle, Violation
from simulation.plans import plan_number

if TYPE_CHECKING:
    from simulation.world import World

COURSE = "a workflow goes as its file says"
MADE_UP = "what a failed workflow did is made up for, the latest first"
IN_TIME = "a wait is not over before its time"

_LABELS = {"approved": "yes", "corrected": "yes", "rejected": "no", "expired": "expired"}
_CUT_SHORT = ("DeadlineExceeded", "BudgetExceeded", "Poisoned", "Cancelled", "LoopDetected")
"""Ends of a run that leave no time to make up for anything."""


def is_workflow(run: Run) -> bool:
    """Return whether it is a workflow, or a part of one."""
    return run.spec is not None and run.spec.kind == "workflow"


def led_to(chronicle: Chronicle, error: ErrorInfo | None) -> bool:
    """Return whether a failed step has ended the workflow."""
    failed = [event for event in chronicle.events if isinstance(event, WorkflowStepFinished) and event.error]
    return error is not None and bool(failed) and any(one.error.type == error.type for one in failed if one.error)


def workflows_go_as_their_files_say(world: World) -> None:
    """From step to step, over every attempt and every way, to the right end."""
    for chronicle in world.history.runs.values():
        if is_workflow(chronicle.run):
            _Redecider(world, chronicle).walk()


class _Redecider:
    def __init__(self, world: World, chronicle: Chronicle) -> None:
        self._world, self._chronicle, self._run = world, chronicle, chronicle.run
        self._steps = workflow_of(self._run.spec).steps
        self._next = workflow_of(self._run.spec).start
        self._attempt = 1
        """Of the step to come."""
        self._tried = 0
        """Of the step in work."""
        self._name = ""
        self._begun = 0.0
        self._seen: list[Any] = []
        """Events of the step in work."""
        self._asked: list[str] = []
        """The answer of the model in it."""
        self._results: dict[str, Any] = {}
        self._visits: dict[str, int] = {}
        self._undo: list[str] = []
        self._undoing: UndoBegun | None = None

    def walk(self) -> None:
        for entry in self._chronicle.entries:
            for event in entry.events:
                match event:
                    case ev.StepStarted(name=name, attempt=attempt):
                        self._enter(name, attempt, entry.at)
                    case WorkflowStepFinished():
                        self._leave(event, entry.at)
                    case UndoBegun():
                        self._undoing = event
                        if event.steps != self._undo[::-1]:
                            raise Violation(MADE_UP, f"{self._run.id} undoes {event.steps}, did {self._undo}")
                        self._next, self._attempt = self._steps[self._undo.pop()].undo, 1
                    case ev.RunFinished():
                        self._end(event)
                    case _:
                        self._seen.append(event)

    def _wrong(self, what: str) -> Violation:
        return Violation(COURSE, f"{self._run.id} at {self._name!r}: {what}")

    def _enter(self, name: str, attempt: int, at: float) -> None:
        if (name, attempt) != (self._next, self._attempt):
            raise self._wrong(f"{name} ({attempt}) was entered, not {self._next} ({self._attempt})")
        self._name, self._tried, self._begun, self._seen = name, attempt, at, []
        self._visits[name] = self._visits.get(name, 0) + (attempt == 1)
        self._world.trace.counts[f"step-{self._doing(self._steps[name])}"] += 1

    @staticmethod
    def _doing(step: WorkflowStep) -> str:
        return type(action_of(step)).__name__.removesuffix("Action").lower()

    # --- where a step led

    def _leave(self, left: WorkflowStepFinished, at: float) -> None:
        step, self._attempt = self._steps[self._name], 1
        if left.error is not None:
            self._failed(left, left.error, step)
            return
        self._waited(step, at)
        ways = self._ways(step, left.label)
        if left.next not in ways:
            raise self._wrong(f"it led to {left.next!r} by {left.label!r}, and may lead to {sorted(ways)}")
        self._succeeded(step)
        self._follow(left.next)

    def _follow(self, following: str) -> None:
        self._next = following
        if not following and self._undoing is not None and self._undo:
            self._next = self._steps[self._undo.pop()].undo

    def _succeeded(self, step: WorkflowStep) -> None:
        self._results[self._name] = self._given(step)
        if step.undo and self._undoing is None:
            self._undo.append(self._name)

    def _failed(self, left: WorkflowStepFinished, error: ErrorInfo, step: WorkflowStep) -> None:
        if error.type not in self._errors(step):
            raise self._wrong(f"it failed by {error}, and nothing of that kind has happened")
        if left.retry:
            most = max(attempts_of(step).most, 3 if self._answers() else 1)
            if self._tried >= most and not self._world.trace.counts["missing"]:
                raise self._wrong(f"is tried again after {self._tried} attempts of {most}")
            self._next, self._attempt = self._name, self._tried + 1
            self._world.trace.counts["step-again"] += 1
        else:
            if left.next != step.on_error:
                raise self._wrong(f"its error led to {left.next!r}, not to {step.on_error!r}")
            self._world.trace.counts["step-failed"] += 1
            self._follow(left.next)

    def _ways(self, step: WorkflowStep, label: str) -> set[str]:
        action = action_of(step)
        if isinstance(action, ChooseAction):
            values = {**self._results, "visits": self._visits}
            held = [case.next for case in action.cases if holds(case.condition, values)]
            return {(held or [action.default])[0]}
        if isinstance(action, ApproveAction):
            (verdict,) = (one.verdict for one in self._seen if isinstance(one, ev.ApprovalDecided))
            if _LABELS[verdict] != label:
                raise self._wrong(f"a person said {verdict}, and that was {label!r}")
            return {getattr(action, label) or (step.next if label == "yes" else "?")}
        if isinstance(action, WaitAction) and action.signal and label == "expired":
            return {action.expired}
        if step.route is not None:
            said = self._answers()[-1]
            said = said.removeprefix('{"answer":').strip(" \"'.}").casefold()
            chosen = step.route.options.get(said)
            return {chosen if chosen is not None else step.route.default}
        return {step.next}

    # --- what a step gave

    def _answers(self) -> list[str]:
        return [one.content for one in self._seen if isinstance(one, ev.ModelAnswered)]

    def _given(self, step: WorkflowStep) -> Any:
        """Its value. Raises Violation where what was to succeed has not."""
        match action_of(step):
            case ToolAction():
                (answer,) = (one for one in self._seen if isinstance(one, ev.ToolAnswered))
                if answer.error is not None:
                    raise self._wrong(f"goes on though its call has failed: {answer.error}")
                return answer.output
            case AgentAction():
                begun = {one.call for one in self._seen if isinstance(one, ev.DelegateStarted)}
                told = [one for one in self._seen if isinstance(one, ev.DelegateFinished)]
                (report,) = (one for one in told if one.call in begun)  # others come late, of an earlier attempt
                if report.state not in (
                    "success",
                    "max_steps_error",
                ):  # one that is out of steps has answered
                    raise self._wrong(f"goes on though its member ended with {report.state}")
                return report.output
            case EachAction() | ParallelAction() as action:
                return self._together(action)
            case ApproveAction():
                (word,) = (one for one in self._seen if isinstance(one, ev.ApprovalDecided))
                return {"answer": _LABELS[word.verdict], "feedback": word.feedback, "by": word.sender}
            case _:
                read = [one.value for one in self._seen if isinstance(one, AnswerParsed)]
                return read[-1] if read else None

    def _together(self, action: EachAction | ParallelAction) -> Any:
        listed = [one.items for one in self._seen if isinstance(one, ItemsListed)]
        total = len(listed[0] if listed else ()) if isinstance(action, EachAction) else len(action.branches)
        begun = [one.call for one in self._seen if isinstance(one, ev.DelegateStarted)]
        told = {
            one.call: one.output
            for one in self._seen
            if isinstance(one, ev.DelegateFinished) and one.state in ("success", "max_steps_error")
        }
        need = min(action.need or total, total)
        if len(told) < need or (isinstance(action, EachAction) and len(begun) != total):
            raise self._wrong(f"{len(told)} of {total} parts have succeeded, {need} had to")
        self._world.trace.counts["parts"] += total
        values = [told.get(call) for call in begun]
        return values if isinstance(action, EachAction) else dict(zip(action.branches, values, strict=False))

    def _waited(self, step: WorkflowStep, at: float) -> None:
        action = action_of(step)
        if isinstance(action, WaitAction) and not any(isinstance(one, AnswerParsed) for one in self._seen):
            assert action.seconds is not None
            skew = 2 * self._world.scenario.most_skew
            if at < self._begun + seconds_of(action.seconds) - skew - 0.01:
                raise Violation(IN_TIME, f"{self._run.id} at {self._name} after {at - self._begun:.2f} s")

    def _errors(self, step: WorkflowStep) -> set[str]:
        """Types of the errors that the step may have failed by."""
        found = {error.type for error in map(_error_of, self._seen) if error is not None}
        action: Action = action_of(step)
        if self._answers() or any(isinstance(one, ev.ModelCalled) for one in self._seen):
            found |= {"AgentParsingError", "AgentGenerationError", "AgentToolCallError", "NoRoute"}
        if any(isinstance(one, ev.ApprovalDecided | ev.CallTimedOut | ev.AnswerChecked) for one in self._seen):
            found |= {"Rejected", "Expired", "AgentToolExecutionError", "AgentError", "TimedOut"}
        if isinstance(action, WaitAction) and action.signal:
            found.add("Expired")
        if isinstance(action, EndAction) and action.error:
            found.add("WorkflowFailed")
        return found

    # --- the end

    def _end(self, end: ev.RunFinished) -> None:
        run, error = self._run, end.error
        if end.state == "success":
            step = self._steps[self._name]
            if isinstance(action_of(step), EndAction):
                assert run.task is not None
                number = plan_number(run.task.task)
                wanted = f"answer of plan {number}"
            else:
                wanted = self._given(step)
            if end.output != wanted:
                raise self._wrong(f"the answer is {end.output!r}, and should be {wanted!r}")
            return
        stopped = end.state == "cancelled" or (error is not None and error.type in _CUT_SHORT)
        if self._undo and not stopped:
            raise Violation(MADE_UP, f"{run.id} ended, and nothing makes up for {self._undo}")
        if self._undoing is not None and self._undo and not _is_cut(self._chronicle.events, error):
            raise Violation(MADE_UP, f"{run.id} ended while {self._undo} were left")
        self._world.trace.counts["undone"] += self._undoing is not None


def _is_cut(events: Sequence[Any], error: ErrorInfo | None) -> bool:
    """Return whether somebody cancelled a second time, or time or budget ended: `error` is the run's."""
    cancels = sum(isinstance(event, ev.CancelRequested) for event in events)
    return cancels > 1 or (error is not None and error.type in _CUT_SHORT)


def _error_of(event: Any) -> ErrorInfo | None:
    return getattr(event, "error", None)
