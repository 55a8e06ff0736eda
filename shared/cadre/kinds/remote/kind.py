"""The kind `remote`: a step sends a message to an agent of another make and asks for its task until that is over.

Each exchange is a call of a tool, each pause a stored wait: a run that waits holds nothing, and whoever goes on with it
finds the remote task in the journal. A message has the same id however often it is sent.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from cadre.engine.budget import over_budget
from cadre.engine.calls.fold_calls import no_answer, timed_out
from cadre.engine.kind import Chat
from cadre.engine.model_request import ModelRequest
from cadre.engine.moves import (
    Answer,
    BeginStep,
    Call,
    Drop,
    EndStep,
    Hold,
    Move,
    Moves,
    Note,
    Signalled,
    Stop,
    Wait,
)
from cadre.engine.steps import step_in_work, still_open
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.parts import JournalEvent
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.kinds.kind import PlainKind
from cadre.kinds.remote.records import (
    DECLARATION,
    RemoteCancelRequested,
    RemoteProgressed,
    RemoteState,
    RemoteUnreachable,
    RemoteUpdated,
    remote_of,
)
from cadre.kinds.remote.replies import question_of, reply_to
from cadre.protocol.a2a import RemoteTask, cancel_tool, get_tool, send_tool
from cadre.protocol.messages import Decision, ErrorInfo, Message, RunState, TimerFired, ToolResult
from cadre.protocol.usage import Usage

_FIRST_PAUSE_SECONDS = 1.0
_GROWTH = 1.5
_QUESTION = "remote_agent"
_AUTHORIZE = "auth_required"
_FAILED = {
    "failed": "The remote agent has failed",
    "rejected": "The remote agent does not take the task",
    "canceled": "The task was canceled at the remote agent",
}


class RemoteKind(PlainKind):
    """`cadre.engine.kind.Kind` for agents that stand for remote ones."""

    name = DECLARATION.name
    stops_circles = False
    counts_steps = False
    stops_repeats = False
    reads_whole = True

    def begin(self, run: Run, arrival: Arrival) -> Moves:
        task = run.task
        assert task is not None
        told: dict[str, Any] = {"text": task.task}
        told |= {"data": [task.inputs]} if task.inputs else {}
        told |= {"images": task.images} if task.images else {}
        return self._send(run, task.forks.at if task.forks is not None else 1, told)

    def _send(self, run: Run, number: int, told: dict[str, Any]) -> Moves:
        call = RequestedCall(send_tool(run.agent), {"message_id": f"{run.id}-{number}", **told})
        return [BeginStep(number, "message"), Call([call], may_repeat=True)]

    def replied(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        raise TypeError("an agent of kind remote asks no model")

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        raise TypeError("an agent of kind remote asks no model")

    def settled(self, run: Run, call: CallState | None, arrival: Arrival) -> Moves:
        if call is None or run.current is None:
            return []
        if call.kind == "question":
            return self._on_word(run, call, arrival)
        state, what = state_of(run), arrival.what
        if call.name == cancel_tool(run.agent) and state.ending is not None:
            return [*_worked(state, _task_of(what)), *self._on_cancelled(run, state.ending, arrival)]
        if isinstance(what, TimerFired) and (timed := timed_out(call, what, arrival.at)).code:
            if state.ending is not None:
                return _ended(state.ending)
            return self._unspoken(run, ErrorInfo("away", f"{call.name}: {no_answer(timed)}"), arrival)
        error = what.error if isinstance(what, ToolResult) else ErrorInfo("remote-error", "No answer came.")
        if error is not None:
            return _ended(state.ending) if state.ending is not None else self.went(run, arrival, error)
        assert isinstance(what, ToolResult)
        try:
            found = msgspec.convert(what.output, RemoteTask)
        except msgspec.ValidationError as wrong:
            text = f"What {call.name} gives is no task of a remote agent: {wrong}"
            return self.went(run, arrival, ErrorInfo("remote-error", text))
        if state.ending is not None:
            # The message was on its way when the run was to end; now its task is known.
            is_over = found.lost or found.state in ("completed", *_FAILED)
            follows = _ended(state.ending) if is_over else self._cancel(run, found.task)
            return [*_worked(state, found), *follows]
        return self._lost(run, found.lost, arrival) if found.lost else self._found(run, found, arrival)

    def _found(self, run: Run, found: RemoteTask, arrival: Arrival) -> Moves:
        state = state_of(run)
        told = RemoteUpdated(
            state=found.state,
            task=found.task or state.task,
            context=found.context or state.context,
            text=found.said,
        )
        changed = _is_change(state, told)
        worked = _worked(state, found)
        moves: list[Move] = [*worked, Note(told)] if changed or told.text != state.text else [*worked]
        is_at_work = found.state not in ("completed", *_FAILED)
        budget = run.budget
        if is_at_work and budget and (over := over_budget(run, budget, [note.event for note in worked])):
            given_up = Note(RemoteCancelRequested(state="error", error=over))
            return [*moves, given_up, *self._cancel(run, told.task)]
        match found.state:
            case "completed":
                return [*moves, Answer(found.answer)]
            case "input_required" | "auth_required":
                about = {"state": found.state, "asked": found.asked}
                return [*moves, Hold(_QUESTION, question_of(found), arguments=about)]
            case ended if ended in _FAILED:
                text = f"{_FAILED[ended]}: {found.said}" if found.said else f"{_FAILED[ended]}."
                failed = ErrorInfo(found.error or "remote-failed", text)
                return [*moves, *self.went(run, arrival, failed)]
            case _:
                return [*moves, self._pause(run, arrival, 0 if changed else state.quiet)]

    def _lost(self, run: Run, reason: str, arrival: Arrival) -> Moves:
        state, section = state_of(run), remote_of(run.spec)
        since = state.unreachable_since or arrival.at
        if arrival.at - since >= section.absence:
            text = f"The remote agent was out of reach for {arrival.at - since:.0f} s: {reason}"
            return self.went(run, arrival, ErrorInfo("remote-unreachable", text))
        if state.unreachable_since:
            return [self._pause(run, arrival, state.quiet)]
        return [Note(RemoteUnreachable(reason=reason)), self._pause(run, arrival, 0)]

    def _on_cancelled(self, run: Run, ending: RemoteCancelRequested, arrival: Arrival) -> Moves:
        """The remote agent knows of the end, or would not hear of it; or it is told again once it is there."""
        what = arrival.what
        lost = (
            what.output.get("lost")
            if isinstance(what, ToolResult) and isinstance(what.output, dict)
            else None
        )
        since = state_of(run).unreachable_since or arrival.at
        if not lost or arrival.at - since >= remote_of(run.spec).absence:
            return _ended(ending)
        noted = [] if state_of(run).unreachable_since else [Note(RemoteUnreachable(reason=lost))]
        return [
            *noted,
            self._pause(run, arrival, state_of(run).quiet if state_of(run).unreachable_since else 0),
        ]

    def _pause(self, run: Run, arrival: Arrival, quiet: int) -> Wait:
        longest = remote_of(run.spec).poll
        pause = min(_FIRST_PAUSE_SECONDS * _GROWTH ** min(quiet, 30), longest)
        return Wait(f"look-{state_of(run).waits + 1}", arrival.at + pause)

    def refused(self, run: Run, calls: Sequence[JournalEvent], arrival: Arrival) -> Moves:
        """No live executor speaks for the remote agent; one may come."""
        (refusal,) = [event for event in calls if isinstance(event, ev.CallRefused)]
        state = state_of(run)
        if state.ending is not None:
            return _ended(state.ending)
        if refusal.name not in run.missing:
            return self.went(run, arrival, refusal.error)
        lacks = f"no service offers {refusal.name}: start `cadre tools FILE`"
        return self._unspoken(run, refusal.error.saying(lacks), arrival)

    def _unspoken(self, run: Run, error: ErrorInfo, arrival: Arrival) -> Moves:
        """Go on as if the remote agent were out of reach: nothing speaks for it at the moment."""
        moves = self._lost(run, error.message, arrival)
        # The next step looks who is there then.
        return moves if isinstance(moves[0], EndStep) else [*moves, EndStep(error)]

    def arrived(self, run: Run, what: Message | Signalled, arrival: Arrival) -> Moves | None:
        if not isinstance(what, TimerFired):
            return None
        state = state_of(run)
        if run.open_calls() or what.name != f"look-{state.waits}":
            return []  # of something that was given up
        if state.ending is not None:
            return self._cancel(run, state.task)
        if state.unsent:
            call = RequestedCall(send_tool(run.agent), state.unsent)
        else:
            after = {"after": state.cursor} if state.cursor else {}
            call = RequestedCall(get_tool(run.agent), {"task_id": state.task, **after})
        begin = [BeginStep(run.step + 1, "message")] if run.current is None else []
        return [*begin, Call([call], may_repeat=True)]

    def _on_word(self, run: Run, call: CallState, arrival: Arrival) -> Moves:
        """A person has answered what the remote agent asked."""
        state, decision = state_of(run), arrival.what
        if not isinstance(decision, Decision):
            return self.went(run, arrival, ErrorInfo("expired", "Nobody answered the remote agent in time."))
        if call.arguments.get("state") == _AUTHORIZE:
            if decision.verdict != "rejected":
                return [self._pause(run, arrival, 0)]
            error = ErrorInfo("rejected", decision.feedback or "A person did not authorize the remote agent.")
            return [Note(RemoteCancelRequested(state="error", error=error)), *self._cancel(run, state.task)]
        told = reply_to(call.arguments.get("asked") or [], decision)
        where = {"taskId": state.task} | ({"contextId": state.context} if state.context else {})
        return [EndStep(), *self._send(run, step_in_work(run) + 1, {**told, "task": where})]

    def went(self, run: Run, arrival: Arrival, error: ErrorInfo | None = None) -> Moves:
        """Nobody is there to try it otherwise."""
        error = error or ErrorInfo("remote-error", "The answer did not pass.")
        return [EndStep(error), Stop("error", error=error)]

    def cancelled(self, run: Run, error: ErrorInfo, arrival: Arrival) -> Moves | None:
        return self._give_up(run, "cancelled", error, arrival)

    def outlived(self, run: Run, error: ErrorInfo, arrival: Arrival) -> Moves | None:
        return None if run.grace else self._give_up(run, "error", error, arrival)

    def _give_up(self, run: Run, state: RunState, error: ErrorInfo, arrival: Arrival) -> Moves | None:
        """The end, once the remote agent was told of it; None: there is nothing to tell."""
        known, current = state_of(run), run.current
        if known.ending is not None:
            return []
        sending = [call for call in still_open(run, arrival) if call.name == send_tool(run.agent)]
        given_up = Note(RemoteCancelRequested(state=state, error=error))
        if sending:
            return [given_up]  # what it answers names the task
        if not known.task or current is None:
            return None
        open_calls = [Drop(error.message)] if still_open(run, arrival) else []
        return [given_up, *open_calls, *self._cancel(run, known.task)]

    def _cancel(self, run: Run, task: str) -> Moves:
        return [Call([RequestedCall(cancel_tool(run.agent), {"task_id": task})], may_repeat=True)]

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        if isinstance(event, ev.RunAccepted):
            run.own = RemoteState()
            return
        state = state_of(run)
        match event:
            case RemoteUpdated():
                state.quiet = 0 if _is_change(state, event) else state.quiet
                state.task, state.context, state.text = event.task, event.context, event.text
                state.state, state.unsent, state.unreachable_since = event.state, {}, 0.0
            case ev.ToolCalled(tool=name) | ev.CallRefused(name=name) if name == send_tool(run.agent):
                state.unsent = event.arguments
            case RemoteProgressed():
                state.cursor = event.cursor or state.cursor
                state.used += event.usage
                run.usage += event.usage
            case RemoteUnreachable():
                state.unreachable_since, state.quiet = at, 0
            case RemoteCancelRequested():
                state.ending = event
            case ev.WaitStarted():
                state.waits += 1
                state.quiet += 1
            case _:
                pass

    def reads_calls(self, run: Run) -> bool:
        return False


def state_of(run: Run) -> RemoteState:
    """The run's own state; an empty one before it has begun."""
    return run.own if isinstance(run.own, RemoteState) else RemoteState()


def _is_change(state: RemoteState, told: RemoteUpdated) -> bool:
    """Whether more than words has changed: then the next question follows soon."""
    return bool(state.unsent or state.unreachable_since) or (told.state, told.task) != (
        state.state,
        state.task,
    )


def _task_of(what: Any) -> RemoteTask | None:
    """What the arrival tells of the task; None when nothing."""
    try:
        return msgspec.convert(what.output, RemoteTask) if isinstance(what, ToolResult) else None
    except msgspec.ValidationError:
        return None


def _worked(state: RemoteState, found: RemoteTask | None) -> list[Note]:
    """What the remote agent has done and used that was not told before."""
    if found is None:
        return []
    now, known = found.usage or state.used, state.used
    used = Usage(
        input_tokens=max(0, now.input_tokens - known.input_tokens),
        output_tokens=max(0, now.output_tokens - known.output_tokens),
        cost=max(0.0, now.cost - known.cost),
    )
    if not found.activity and used == Usage():
        return []
    return [Note(RemoteProgressed(activity=found.activity, usage=used, cursor=found.cursor))]


def _ended(ending: RemoteCancelRequested) -> Moves:
    return [EndStep(ending.error), Stop(ending.state, error=ending.error)]


REMOTE = RemoteKind()
