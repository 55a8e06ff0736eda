"""The course of patient agents: one answer, its calls, a pause, the next answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cadre.engine.answers.json_text import ReadingError, read_arguments
from cadre.engine.draft import Draft
from cadre.engine.kind import Absent, Chat, Editable, EditNotAllowed, Kind, Signalled
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.parts import JournalEvent
from cadre.journal.run import CallState, Run
from cadre.protocol.messages import (
    Decision,
    Edit,
    ErrorInfo,
    Message,
    TimerFired,
)
from cadre.spec.names import FINAL_ANSWER
from patient_kind.records import Noted, Nudge, Nudged, PatientSpec, PatientState


class PatientKind(Kind):
    """`cadre.engine.kind.Kind` for patient agents."""

    def begin(self, draft: Draft) -> None:
        draft.ask("act", draft.first_step)

    def answered(self, draft: Draft, reply: ModelReplied) -> None:
        if not reply.calls:
            self.go_on(draft, ErrorInfo("unreadable-answer", "Call a tool."))
            return
        if len(reply.calls) == 1 and reply.calls[0].name == FINAL_ANSWER:
            try:
                arguments = read_arguments(reply.calls[0])
            except ReadingError as error:
                self.go_on(draft, error.info)
            else:
                draft.answer(arguments.get("answer"), arguments)
            return
        draft.note(Noted(step=draft.step, calls=len(reply.calls)))
        if _section(draft.run).ask and draft.step == 1:
            draft.hold("go", f"May I make {len(reply.calls)} calls?")
        else:
            draft.call(reply.calls)

    def settled(self, draft: Draft, calls: Sequence[CallState]) -> None:
        decision = draft.arrival.what
        if not any(call.kind == "question" for call in calls):
            super().settled(draft, calls)
        elif isinstance(decision, Decision) and decision.verdict != "rejected":
            draft.call([ev.RequestedCall(name, arguments) for name, arguments in _state(draft.run).asked])
        else:
            self.go_on(draft, ErrorInfo("rejected", "A person did not want the calls."))

    def go_on(self, draft: Draft, error: ErrorInfo | None = None) -> None:
        pause, go, step = _section(draft.run).pause, _section(draft.run).signal or None, draft.step
        draft.end_step(error)
        if pause or go:
            draft.wait("pause", draft.at + pause if pause else None, go)
        else:
            draft.ask("act", step + 1)

    def arrived(self, draft: Draft, what: Message | Signalled | Absent) -> bool:
        match what:
            case TimerFired():
                draft.ask("act", draft.run.step + 1)
            case Signalled():
                draft.note(Nudged(text=f"{what.wait} ended by {what.signal}: {what.payload}"))
                draft.ask("act", draft.run.step + 1)
            case Nudge():
                draft.note(Nudged(text=what.text))
            case _:
                return False
        return True

    def editable(self, run: Run) -> Editable | None:
        state = _state(run)
        return Editable("queue", state.version, state.wishes)

    def edit(self, draft: Draft, edit: Edit) -> None:
        _wishes_after(_state(draft.run).wishes, edit.operations)
        draft.edited(edit)
        draft.note(Nudged(text=f"{len(_state(draft.run).wishes)} wishes"))

    def fold(self, run: Run, event: JournalEvent, n: int, at: float) -> None:
        match event:
            case ev.RunAccepted():
                run.own = PatientState()
            case ev.ModelAnswered():
                _state(run).asked = [(call.name, _text(call.arguments)) for call in event.calls]
            case ev.EditApplied():
                _state(run).wishes = _wishes_after(_state(run).wishes, event.operations)
                _state(run).version += 1
            case Nudged():
                _state(run).nudges += 1
            case _:
                pass

    def request(self, run: Run, purpose: str, chat: Chat) -> ModelRequest:
        return ModelRequest(messages=chat.messages(run), tools=chat.functions(), stop=["Observation:"])


def _section(run: Run) -> PatientSpec:
    assert run.spec is not None
    return run.spec.section(PatientSpec) or PatientSpec()


def _state(run: Run) -> PatientState:
    assert isinstance(run.own, PatientState)
    return run.own


def _wishes_after(wishes: list[str], operations: list[dict[str, Any]]) -> list[str]:
    """Raises EditNotAllowed for an operation that is not `{op: add, wish}` or `{op: drop, wish}` of a wish there is."""
    found = list(wishes)
    for operation in operations:
        match operation:
            case {"op": "add", "wish": str() as wish}:
                found.append(wish)
            case {"op": "drop", "wish": wish} if wish in found:
                found.remove(wish)
            case _:
                raise EditNotAllowed(f"no such operation: {operation}")
    return found


def _text(arguments: str | dict[str, Any]) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


PATIENT = PatientKind()
