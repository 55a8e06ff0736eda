"""The way that one arrival takes a run through its workflow: from the step that it settles to the next one that waits
for something, or to the end."""

import msgspec

from cadre.engine.moves import (
    PARTIAL_RESULT,
    Answer,
    Ask,
    BeginStep,
    Drop,
    EndStep,
    Move,
    Moves,
    Note,
    Stop,
    Wait,
)
from cadre.engine.steps import step_in_work, still_open
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival
from cadre.journal.parts import JournalEvent
from cadre.journal.run import Run
from cadre.kinds.workflow.actions import PAUSE, begin_action, way_after
from cadre.kinds.workflow.fold import after, state_of, unsure_steps
from cadre.kinds.workflow.outcome import StepOutcome
from cadre.kinds.workflow.records import Ending, UndoBegun, WorkflowState, WorkflowStepFinished
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
"""How often a step is tried at least when its model has answered what cannot be used."""

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
    """One arrival's way. `moves` are what it has come to."""

    def __init__(self, run: Run, arrival: Arrival, state: WorkflowState | None = None) -> None:
        assert run.spec is not None
        self._run, self._arrival = run, arrival
        self._workflow: WorkflowSpec = workflow_of(run.spec)
        self.state = state if state is not None else state_of(run)
        self._number = step_in_work(run)
        self.moves: list[Move] = []
        self._going: tuple[str, int] | None = None

    @property
    def step(self) -> WorkflowStep:
        """The step in work."""
        return self._workflow.steps[self.state.step]

    def enter(self, name: str, attempt: int = 1) -> Moves:
        """Enters a step, and those that follow for as long as none of them waits for anything."""
        self._going = (name, attempt)
        return self._walked()

    def settle(self, outcome: StepOutcome) -> Moves:
        """The step in work has its outcome."""
        self._settle(outcome)
        return self._walked()

    def leave(self, target: str, label: str = "") -> Moves:
        """The step in work has succeeded, and leads there; "" is the end."""
        self._leave(target, label)
        return self._walked()

    def fail(self, error: ErrorInfo) -> Moves:
        """The step in work has failed for good, and nothing catches that."""
        self._fail(error)
        return self._walked()

    def give_up(self, state: RunState, error: ErrorInfo) -> Moves:
        """The workflow ends so, whatever it is at; what was done is made up for first."""
        self._end_badly(state, error)
        return self._walked()

    def stop_undoing(self) -> Moves:
        """The time to make up for things is over."""
        ending = self.state.ending
        assert ending is not None
        return [self._last(ending)]

    def drop(self, reason: str) -> None:
        """Gives up what the step in work still waits for."""
        if still_open(self._run, self._arrival):
            self.moves.append(Drop(reason))

    def note(self, event: JournalEvent) -> None:
        """Journals an event of the kind's own; what follows is decided in the state after it."""
        self.moves.append(Note(event))
        self._take(event)

    def _take(self, event: JournalEvent) -> None:
        undo = self.step.undo if isinstance(event, WorkflowStepFinished) else ""
        self.state = after(self.state, event, self._arrival.at, undo)

    def _walked(self) -> Moves:
        while self._going is not None:
            (name, attempt), self._going = self._going, None
            self._enter(name, attempt)
        return self.moves

    # --- one step

    def _enter(self, name: str, attempt: int) -> None:
        self._number += 1
        entered = self.state.visits.get(name, 0)
        self._take(ev.StepStarted(step=self._number, name=name, attempt=attempt))
        self.moves.append(BeginStep(self._number, name, attempt, self.state))
        task = self._run.task
        if attempt == 1 and entered >= self.step.visits:
            text = f"It was entered {entered} times, which is all that its `visits` allow."
            self._fail(ErrorInfo("loop", text), is_own=True)
        elif task is not None and task.max_steps is not None and self._number > task.max_steps:
            error = ErrorInfo("max-steps", f"Reached the limit of {task.max_steps} steps.")
            self._fail(error, is_own=True)
        else:
            begun = begin_action(self._run, self.state, self.step, self._number, self._arrival.at)
            if isinstance(begun, StepOutcome):
                self._settle(begun)
            else:
                self.moves += begun

    def _settle(self, outcome: StepOutcome) -> None:
        error = outcome.error
        if error is None:
            self.state = msgspec.structs.replace(self.state, value=outcome.value)
            way = way_after(self._run, self.state, self.step, outcome)
            error = way.error
            if error is None and self.step.route is not None:
                self.moves.append(Ask("route", self._number))
                return
            if error is None:
                self._leave(way.target, way.label)
                return
        if not self._tries_again(error):
            self._fail(error)

    def _leave(self, target: str, label: str) -> None:
        if not target and self.state.ending is None:
            self.moves.append(Answer(self.state.value))
            return
        more = bool(self.state.undo)
        self.note(WorkflowStepFinished(name=self.state.step, next=target, label=label))
        self.moves.append(EndStep())
        if target:
            self._going = (target, 1)
        else:
            self._undo_next(more)

    def _tries_again(self, error: ErrorInfo) -> bool:
        """Whether the step is tried once more, at once or after a pause."""
        attempts, attempt = attempts_of(self.step), self.state.attempt
        absent = self._callee() in self._arrival.offer.missing and error.code in _OF_THE_MODEL
        away = error.code == "away" and isinstance(self._arrival.what, TimerFired)
        most = max(attempts.most, AWAY_TRIES) if away else self._most(attempts, error, absent)
        if attempt >= most or not (absent or away or _is_passing(attempts, error)):
            return False
        self.note(WorkflowStepFinished(name=self.state.step, next=self.state.step, error=error, retry=True))
        self.moves.append(EndStep(error))
        pause = 2.0 if absent else 0.0 if away else seconds_of(attempts.pause)
        if not pause:
            self._going = (self.state.step, attempt + 1)
        else:
            longest = _LONGEST_ABSENCE_SECONDS if absent else _LONGEST_PAUSE_SECONDS
            pause = min(pause * 2.0 ** (attempt - 1), max(pause, longest))
            self.moves.append(Wait(f"{PAUSE}{self._number}", self._arrival.at + pause))
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
        name, target, more = self.state.step, self.step.on_error, bool(self.state.undo)
        if is_own:
            target = ""
        self.note(WorkflowStepFinished(name=name, next=target, error=error))
        if target:
            self.moves.append(EndStep(error))
            self._going = (target, 1)
        elif self.state.ending is not None:
            self.moves.append(EndStep(error))
            self._undo_next(more)
        else:
            state: RunState = "max_steps_error" if is_own and error.code == "max-steps" else "error"
            self._end_badly(state, error.saying(f"Step {name!r} has failed: {error.message}"))

    def _end_badly(self, state: RunState, error: ErrorInfo) -> None:
        if self.state.undo and self.state.ending is None:
            steps = [entry.step for entry in reversed(self.state.undo)]
            unsure = unsure_steps(self._run, self.state, still_open(self._run, self._arrival))
            self.note(UndoBegun(state=state, error=error, steps=steps, unsure=unsure))
            self.moves += [EndStep(error)] if self._is_in_step() else []
            self._undo_next(True)
        else:
            self.moves += [EndStep(error)] if self._is_in_step() else []
            self.moves.append(Stop(state, PARTIAL_RESULT, error))

    def _is_in_step(self) -> bool:
        return self._run.current is not None or any(isinstance(move, BeginStep) for move in self.moves)

    def _undo_next(self, more: bool) -> None:
        """Goes on with what is to be made up for, or ends the run as it was to end."""
        ending = self.state.ending
        assert ending is not None
        if more and ending.undone is not None:
            self._going = (ending.undone.undo, 1)
            return
        self.moves.append(self._last(ending))

    @staticmethod
    def _last(ending: Ending) -> Stop:
        return Stop(ending.state, PARTIAL_RESULT, ending.error)


def _is_passing(attempts: StepAttempts, error: ErrorInfo) -> bool:
    """Whether the step may be tried again after this error."""
    if not attempts.on:
        return error.code not in _FINAL
    return any(
        one in (error.code, error.type) or one.casefold() in error.message.casefold() for one in attempts.on
    )
