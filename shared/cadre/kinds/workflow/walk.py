"""The way that one arrival takes a run through its workflow: from the step that it settles to the next one that waits
for something, or to the end."""

from typing import Any

from cadre.engine.draft import Draft
from cadre.kinds.workflow.actions import PAUSE, begin_action, way_after
from cadre.kinds.workflow.fold import StepOutcome, state_of, unsure_steps
from cadre.kinds.workflow.records import AnswerParsed, UndoBegun, WorkflowState, WorkflowStepFinished
from cadre.kinds.workflow.section import (
    AgentAction,
    AskAction,
    StepAttempts,
    ToolAction,
    WorkflowSpec,
    WorkflowStep,
    action_of,
    attempts_of,
    workflow_of,
)
from cadre.protocol.codes import ErrorCode
from cadre.protocol.messages import ErrorInfo, RunState, TimerFired
from cadre.spec.durations import seconds_of

MISTAKES = 3
"""The least number of attempts at a step whose model has answered what cannot be used."""

ABSENT = 12
"""Least number of tries of a step whose tool or member was never there: about six minutes."""

AWAY_TRIES = 6
"""Least number of tries of a step whose tool or member is away: each try waits for it as `limits.away` says."""

_LONGEST_ABSENCE_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 86_400.0

_OF_THE_MODEL: tuple[ErrorCode, ...] = ("unreadable-answer", "cut-off", "invalid-call")
_FINAL: tuple[ErrorCode, ...] = ("rejected", "expired", "interrupted", "workflow-failed", "no-way")
"""Errors after which a step is tried again only where its `attempts.on` names them."""


class Walk:
    """One arrival's way; all of its state is the run's."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._workflow: WorkflowSpec = workflow_of(draft.spec)
        self._out = draft.run.open_calls()
        """Calls of the step in work that were open when the way began."""
        self._going: tuple[str, int] | None = None

    @property
    def state(self) -> WorkflowState:
        return state_of(self._draft.run)

    @property
    def step(self) -> WorkflowStep:
        """The step in work."""
        return self._workflow.steps[self.state.step]

    def enter(self, name: str, attempt: int = 1) -> None:
        """Enter a step, and those that follow for as long as none of them waits for anything."""
        self._going = (name, attempt)
        self._walk()

    def settle(self, outcome: StepOutcome) -> None:
        """The step in work has its outcome."""
        self._settle(outcome)
        self._walk()

    def leave(self, target: str, label: str = "") -> None:
        """The step in work has succeeded, and leads there; "" is the end."""
        self._leave(target, label, self.state.value)
        self._walk()

    def fail(self, error: ErrorInfo) -> None:
        """The step in work has failed for good, and nothing catches that."""
        self._fail(error)
        self._walk()

    def give_up(self, state: RunState, error: ErrorInfo) -> None:
        """End the workflow so, from any step; what was done is made up for first."""
        self._draft.drop(error.message)
        self._end_badly(state, error)
        self._walk()

    def stop_undoing(self) -> None:
        """The time to make up for things is over."""
        ending = self.state.ending
        assert ending is not None
        self._draft.stop(ending.state, self._draft.found(), ending.error)

    def _walk(self) -> None:
        while self._going is not None and not self._draft.is_over:
            (name, attempt), self._going = self._going, None
            self._enter(name, attempt)

    # --- one step

    def _enter(self, name: str, attempt: int) -> None:
        draft, number, entered = self._draft, self._draft.step + 1, self.state.visits.get(name, 0)
        draft.begin_step(number, name, attempt)
        self._out = []
        task = draft.run.task
        if attempt == 1 and entered >= self.step.visits:
            text = f"It was entered {entered} times, which is all that its `visits` allow."
            self._fail(ErrorInfo("loop", text), is_own=True)
        elif task is not None and task.max_steps is not None and number > task.max_steps:
            error = ErrorInfo("max-steps", f"Reached the limit of {task.max_steps} steps.")
            self._fail(error, is_own=True)
        elif (outcome := begin_action(draft, self.state, self.step, number)) is not None:
            self._settle(outcome)

    def _settle(self, outcome: StepOutcome) -> None:
        error = outcome.error
        if error is None:
            way = way_after(self._draft.run, self.state, self.step, outcome)
            error = way.error
            if error is None and self.step.route is not None:
                self._draft.ask("route", self._draft.step)
                return
            if error is None:
                self._leave(way.target, way.label, outcome.value)
                return
        if not self._tries_again(error):
            self._fail(error)

    def _leave(self, target: str, label: str, value: Any) -> None:
        draft = self._draft
        if not target and self.state.ending is None:
            draft.answer(value)
            return
        if value != self.state.value:
            draft.note(AnswerParsed(value=value))
        more = bool(self.state.undo)
        draft.note(WorkflowStepFinished(name=self.state.step, next=target, label=label))
        draft.end_step()
        if target:
            self._going = (target, 1)
        else:
            self._undo_next(more)

    def _tries_again(self, error: ErrorInfo) -> bool:
        """Return whether the step is tried once more, at once or after a pause."""
        draft, attempts, attempt = self._draft, attempts_of(self.step), self.state.attempt
        absent = self._callee() in draft.arrival.toolset.missing and error.code in _OF_THE_MODEL
        away = error.code == "away" and isinstance(draft.arrival.what, TimerFired)
        most = max(attempts.most, AWAY_TRIES) if away else self._most(attempts, error, absent)
        if attempt >= most or not (absent or away or _is_passing(attempts, error)):
            return False
        number = draft.step
        draft.note(WorkflowStepFinished(name=self.state.step, next=self.state.step, error=error, retry=True))
        draft.end_step(error)
        pause = 2.0 if absent else 0.0 if away else seconds_of(attempts.pause)
        if not pause:
            self._going = (self.state.step, attempt + 1)
        else:
            longest = _LONGEST_ABSENCE_SECONDS if absent else _LONGEST_PAUSE_SECONDS
            pause = min(pause * 2.0 ** (attempt - 1), max(pause, longest))
            draft.wait(f"{PAUSE}{number}", draft.at + pause)
        return True

    def _callee(self) -> str:
        action = action_of(self.step)
        return action.name if isinstance(action, ToolAction | AgentAction) else ""

    def _most(self, attempts: StepAttempts, error: ErrorInfo, absent: bool) -> int:
        if absent:
            return max(attempts.most, ABSENT)
        action = action_of(self.step)
        asked = isinstance(action, AskAction) or (isinstance(action, ToolAction) and action.instruction)
        return max(attempts.most, MISTAKES) if asked and error.code in _OF_THE_MODEL else attempts.most

    # --- the bad ends

    def _fail(self, error: ErrorInfo, *, is_own: bool = False) -> None:
        """`is_own`: a bound of the workflow itself is reached, behind which no step follows."""
        draft, name, target, more = self._draft, self.state.step, self.step.on_error, bool(self.state.undo)
        if is_own:
            target = ""
        draft.note(WorkflowStepFinished(name=name, next=target, error=error))
        if target:
            draft.end_step(error)
            self._going = (target, 1)
        elif self.state.ending is not None:
            draft.end_step(error)
            self._undo_next(more)
        else:
            state: RunState = "max_steps_error" if is_own and error.code == "max-steps" else "error"
            self._end_badly(state, error.saying(f"Step {name!r} has failed: {error.message}"))

    def _end_badly(self, state: RunState, error: ErrorInfo) -> None:
        draft = self._draft
        undoes = bool(self.state.undo) and self.state.ending is None
        if undoes:
            steps = [entry.step for entry in reversed(self.state.undo)]
            unsure = unsure_steps(draft.run, self.state, self._out)
            draft.note(UndoBegun(state=state, error=error, steps=steps, unsure=unsure))
        if draft.run.current is not None:
            draft.end_step(error)
        if undoes:
            self._undo_next(True)
        else:
            draft.stop(state, draft.found(), error)

    def _undo_next(self, more: bool) -> None:
        """Go on with what is to be made up for, or ends the run as it was to end."""
        ending = self.state.ending
        assert ending is not None
        if more and ending.undone is not None:
            self._going = (ending.undone.undo, 1)
        else:
            self.stop_undoing()


def _is_passing(attempts: StepAttempts, error: ErrorInfo) -> bool:
    """Return whether the step may be tried again after this error."""
    if not attempts.on:
        return error.code not in _FINAL
    return any(one in (error.code, error.type) or one.casefold() in error.message.casefold() for one in attempts.on)
