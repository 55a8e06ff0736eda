"""The kind `remote`: a step sends a message to an agent of another make and asks for its task until that is over.

Each exchange is a call of a tool, each pause a stored wait: a run that waits holds nothing, and the worker that goes on
with it finds the remote task in the journal. A message has the same id however often it is sent.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cadre.engine.budget import over_budget
from cadre.engine.calls.fold_calls import no_answer
from cadre.engine.context.text_size import observation_of
from cadre.engine.draft import Draft
from cadre.engine.graph import label
from cadre.engine.kind import Absent, Chat, Kind, Signalled
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.parts import JournalEvent
from cadre.journal.run import CallState, Run
from cadre.kinds.remote.records import (
    RemoteCancelRequested,
    RemoteProgressed,
    RemoteState,
    RemoteUnreachable,
    RemoteUpdated,
    remote_of,
)
from cadre.protocol.a2a import RemoteTask, cancel_tool, get_tool, send_tool
from cadre.protocol.messages import Decision, ErrorInfo, Message, TimerFired
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec

_FIRST_PAUSE_SECONDS = 1.0
_GROWTH = 1.5
_QUESTION = "remote_agent"
_ASKS = "input_required"
_AUTHORIZE = "auth_required"
_WORKING = "working"
_FAILED = {
    "failed": "The remote agent has failed",
    "rejected": "The remote agent does not take the task",
    "canceled": "The task was canceled at the remote agent",
}


class RemoteKind(Kind):
    """`cadre.engine.kind.Kind` for agents that stand for remote ones."""

    guided = False

    def graph(self, spec: AgentSpec) -> Iterator[str]:
        return graph_of(spec)

    def begin(self, draft: Draft) -> None:
        task = draft.run.task
        assert task is not None
        draft.plan([send_tool(draft.run.agent)])
        told: dict[str, Any] = {"text": task.task}
        told |= {"data": [task.inputs]} if task.inputs else {}
        told |= {"images": task.images} if task.images else {}
        self._send(draft, draft.first_step, told)

    def _send(self, draft: Draft, number: int, told: dict[str, Any]) -> None:
        run = draft.run
        draft.begin_step(number, "message")
        call = RequestedCall(send_tool(run.agent), {"message_id": f"{run.id}-{number}", **told})
        draft.call([call], may_repeat=True)

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        raise TypeError("an agent of kind remote asks no model")

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        raise TypeError("an agent of kind remote asks no model")

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        run, call = draft.run, calls[0]
        if run.current is None:
            return
        if call.kind == "question":
            self._on_word(draft, call)
            return
        state, closed = state_of(run), draft.event_of(call)
        if isinstance(closed, ev.CallRefused):
            self._refused(draft, closed)
        elif call.name == cancel_tool(run.agent) and state.ending is not None:
            _note_work(draft, _task_of(closed))
            self._on_cancelled(draft, state.ending, closed)
        elif isinstance(closed, ev.CallTimedOut) and closed.code:
            if state.ending is not None:
                _end(draft, state.ending)
            else:
                self._unspoken(draft, ErrorInfo("away", f"{call.name}: {no_answer(closed)}"))
        else:
            self._answered(draft, call, closed)

    def _answered(self, draft: Draft, call: CallState, closed: ev.AnyEvent) -> None:
        """Something has come of a call that sends a message, or looks after its task."""
        state = state_of(draft.run)
        error: ErrorInfo | None = ErrorInfo("remote-error", "No answer came.")
        found = None
        if isinstance(closed, ev.ToolAnswered):
            error = closed.error
            try:
                found = msgspec.convert(closed.output, RemoteTask) if error is None else None
            except msgspec.ValidationError as wrong:
                text = f"What {call.name} gives is no task of a remote agent: {wrong}"
                self.go_on(draft, ErrorInfo("remote-error", text))
                return
        if found is None:
            if state.ending is not None:
                _end(draft, state.ending)
            else:
                self.go_on(draft, error)
        elif state.ending is not None:
            # The message was on its way when the run was to end; now its task is known.
            _note_work(draft, found)
            if found.lost or found.state in ("completed", *_FAILED):
                _end(draft, state.ending)
            else:
                self._cancel(draft, found.task)
        elif found.lost:
            self._lost(draft, found.lost)
        else:
            self._found(draft, found)

    def _found(self, draft: Draft, found: RemoteTask) -> None:
        state = state_of(draft.run)
        told = RemoteUpdated(
            state=_WORKING if _is_answered(state, found) else found.state,
            task=found.task or state.task,
            context=found.context or state.context,
            text=found.said,
            status_id=found.status_id,
        )
        changed, quiet = _is_change(state, told), state.quiet
        _note_work(draft, found)
        if changed or told.text != state.text:
            draft.note(told)
        is_at_work = found.state not in ("completed", *_FAILED)
        if is_at_work and (over := over_budget(draft.run)) is not None:
            draft.note(RemoteCancelRequested(state="error", error=over))
            self._cancel(draft, told.task)
            return
        match told.state:
            case "completed":
                draft.answer(found.answer)
            case asks if asks in (_ASKS, _AUTHORIZE):
                about = {"state": told.state, "asked": found.asked}
                draft.hold(_QUESTION, question_of(found), arguments=about)
            case ended if ended in _FAILED:
                text = f"{_FAILED[ended]}: {found.said}" if found.said else f"{_FAILED[ended]}."
                self.go_on(draft, ErrorInfo(found.error or "remote-failed", text))
            case _:
                self._pause(draft, 0 if changed else quiet)

    def _lost(self, draft: Draft, reason: str) -> bool:
        """Look again later. Return False if the run ends: the remote agent was out of reach for too long."""
        state, section = state_of(draft.run), remote_of(draft.spec)
        since = state.unreachable_since or draft.at
        if draft.at - since >= section.absence:
            text = f"The remote agent was out of reach for {draft.at - since:.0f} s: {reason}"
            self.go_on(draft, ErrorInfo("remote-unreachable", text))
            return False
        if not state.unreachable_since:
            draft.note(RemoteUnreachable(reason=reason))
        self._pause(draft, state_of(draft.run).quiet)
        return True

    def _on_cancelled(self, draft: Draft, ending: RemoteCancelRequested, closed: ev.AnyEvent) -> None:
        """The remote agent knows of the end, or refused it; or it is informed again once it is there."""
        output = closed.output if isinstance(closed, ev.ToolAnswered) else None
        lost = output.get("lost") if isinstance(output, dict) else None
        since = state_of(draft.run).unreachable_since or draft.at
        if not lost or draft.at - since >= remote_of(draft.spec).absence:
            _end(draft, ending)
            return
        if not state_of(draft.run).unreachable_since:
            draft.note(RemoteUnreachable(reason=lost))
        self._pause(draft, state_of(draft.run).quiet)

    def _pause(self, draft: Draft, quiet: int) -> None:
        longest = remote_of(draft.spec).poll
        pause = min(_FIRST_PAUSE_SECONDS * _GROWTH ** min(quiet, 30), longest)
        draft.wait(f"look-{state_of(draft.run).waits + 1}", draft.at + pause)

    def _refused(self, draft: Draft, refusal: ev.CallRefused) -> None:
        """No live executor speaks for the remote agent; one may come."""
        state = state_of(draft.run)
        if state.ending is not None:
            _end(draft, state.ending)
        elif refusal.name not in draft.run.missing:
            self.go_on(draft, refusal.error)
        else:
            lacks = f"no service offers {refusal.name}: start `cadre tools FILE`"
            self._unspoken(draft, refusal.error.saying(lacks))

    def _unspoken(self, draft: Draft, error: ErrorInfo) -> None:
        """Go on as if the remote agent were out of reach: nothing speaks for it at the moment."""
        if self._lost(draft, error.message):
            draft.end_step(error)  # the next step looks who is there then

    def arrived(self, draft: Draft, what: Message | Signalled | Absent) -> bool:
        if not isinstance(what, TimerFired):
            return False
        run, state = draft.run, state_of(draft.run)
        if run.open_calls() or what.name != f"look-{state.waits}":
            return True  # of something that was given up
        if state.ending is not None:
            self._cancel(draft, state.task)
            return True
        if state.unsent:
            call = RequestedCall(send_tool(run.agent), state.unsent)
        else:
            after = {"after": state.cursor} if state.cursor else {}
            call = RequestedCall(get_tool(run.agent), {"task_id": state.task, **after})
        if run.current is None:
            draft.begin_step(run.step + 1, "message")
        draft.call([call], may_repeat=True)
        return True

    def _on_word(self, draft: Draft, call: CallState) -> None:
        """A person has answered what the remote agent asked."""
        state, decision = state_of(draft.run), draft.arrival.what
        if not isinstance(decision, Decision):
            self.go_on(draft, ErrorInfo("expired", "Nobody answered the remote agent in time."))
        elif call.arguments.get("state") != _AUTHORIZE:
            told = reply_to(call.arguments.get("asked") or [], decision)
            where = {"taskId": state.task} | ({"contextId": state.context} if state.context else {})
            number = draft.step + 1
            draft.end_step()
            self._send(draft, number, {**told, "task": where})
        elif decision.verdict != "rejected":
            self._pause(draft, 0)
        else:
            error = ErrorInfo("rejected", decision.feedback or "A person did not authorize the remote agent.")
            draft.note(RemoteCancelRequested(state="error", error=error))
            self._cancel(draft, state.task)

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        """No model is there to try it another way."""
        error = error or ErrorInfo("remote-error", "The answer did not pass.")
        draft.end_step(error)
        draft.stop("error", error=error)

    def ending(self, draft: Draft, error: ErrorInfo) -> bool:
        """The remote agent is informed of the end first, if it has been sent anything."""
        run, state = draft.run, state_of(draft.run)
        is_late = error.code in ("deadline", "budget")
        if (is_late and run.grace) or not (is_late or error.code == "cancelled"):
            return False
        sends = any(call.name == send_tool(run.agent) for call in run.open_calls())
        if state.ending is None and not sends and (not state.task or run.current is None):
            return False
        draft.begin_grace(error)
        if state.ending is not None:
            return True
        draft.note(RemoteCancelRequested(state="error" if is_late else "cancelled", error=error))
        if not sends:  # what it answers names the task
            draft.drop(error.message)
            self._cancel(draft, state.task)
        return True

    def _cancel(self, draft: Draft, task: str) -> None:
        draft.call([RequestedCall(cancel_tool(draft.run.agent), {"task_id": task})], may_repeat=True)

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        if isinstance(event, ev.RunAccepted):
            run.own = RemoteState()
            return
        state = state_of(run)
        match event:
            case RemoteUpdated():
                state.quiet = 0 if _is_change(state, event) else state.quiet
                state.task, state.context, state.text = event.task, event.context, event.text
                state.status_id = event.status_id
                state.state, state.unsent, state.unreachable_since = event.state, {}, 0.0
            case ev.ToolCalled(tool=name) | ev.CallRefused(name=name) if name == send_tool(run.agent):
                state.unsent = event.arguments
                state.answered = state.status_id if state.state == _ASKS else state.answered
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
    """Return whether more than words has changed: then the next question follows soon."""
    return bool(state.unsent or state.unreachable_since) or (told.state, told.task) != (
        state.state,
        state.task,
    )


def _is_answered(state: RemoteState, found: RemoteTask) -> bool:
    """Return whether the remote agent shows the question that it was just answered, since it has not gone on yet."""
    return found.state == _ASKS and state.answered != "" and found.status_id in ("", state.answered)


def _task_of(closed: ev.AnyEvent) -> RemoteTask | None:
    """Return what the event says of the task; None if nothing."""
    try:
        return msgspec.convert(closed.output, RemoteTask) if isinstance(closed, ev.ToolAnswered) else None
    except msgspec.ValidationError:
        return None


def _note_work(draft: Draft, found: RemoteTask | None) -> None:
    """Note what the remote agent has done and used that was not reported before."""
    if found is None:
        return
    known = state_of(draft.run).used
    now = found.usage or known
    used = Usage(
        input_tokens=max(0, now.input_tokens - known.input_tokens),
        output_tokens=max(0, now.output_tokens - known.output_tokens),
        cost=max(0.0, now.cost - known.cost),
    )
    if found.activity or used != Usage():
        draft.note(RemoteProgressed(activity=found.activity, usage=used, cursor=found.cursor))


def _end(draft: Draft, ending: RemoteCancelRequested) -> None:
    draft.end_step(ending.error)
    draft.stop(ending.state, error=ending.error)


REMOTE = RemoteKind()


def graph_of(spec: AgentSpec) -> Iterator[str]:
    """The lines of a Mermaid flowchart: the task goes to the remote agent, its answer comes back."""
    section = remote_of(spec)
    what = section.card or section.url or (section.program.command[0] if section.program else "A2A")
    if (nats := section.nats) is not None:
        what = f"{nats.agent}/{nats.owner}/{nats.session}"
    yield "flowchart TD"
    yield "    task([task]) --> remote"
    yield f'    remote[["{label(spec.name)}<br/>{label(what)}"]]'
    yield "    remote --> answer([answer])"


_ASK_USER = "ask_user"
"""The tool by which agents of Cadre ask people: it takes an answer, not a consent."""


def question_of(found: RemoteTask) -> str:
    """Its words, and the calls that an agent of Cadre asks about."""
    calls = [f"{one['tool']} {observation_of(one.get('arguments') or {})}" for one in _calls(found.asked)]
    return "\n".join([found.said, *calls]).strip() or "The remote agent asks for an answer."


def reply_to(asked: Sequence[Any], decision: Decision) -> dict[str, Any]:
    """The word as text; for each call that an agent of Cadre has named, as the data that it reads."""
    calls = _calls(asked)
    is_no = decision.verdict == "rejected"
    if not calls:
        no = f"reject: {decision.feedback}" if decision.feedback else "reject"
        return {"text": no if is_no else decision.feedback or "approve"}
    return {"data": [_ruling(one, decision, is_no=is_no) for one in calls]}


def _calls(asked: Sequence[Any]) -> list[dict[str, Any]]:
    return [one for one in asked if isinstance(one, dict) and {"call", "tool"} <= one.keys()]


def _ruling(one: dict[str, Any], decision: Decision, *, is_no: bool) -> dict[str, Any]:
    if one.get("tool") == _ASK_USER and not is_no:
        return {
            "call": one["call"],
            "verdict": "corrected",
            "arguments": {"answer": decision.feedback or "yes"},
        }
    found = {"call": one["call"], "verdict": "rejected" if is_no else "approved"}
    return found | ({"feedback": decision.feedback} if decision.feedback else {})
