"""How patient agents work: one answer, its calls, a pause, the next answer."""

from __future__ import annotations

from typing import Any

import msgspec

from cadre.engine.answers.json_text import ReadingError, read_arguments
from cadre.engine.edits import (
    Editable,
    EditNotAllowed,
)
from cadre.engine.kind import Chat
from cadre.engine.model_request import ModelRequest
from cadre.engine.moves import Answer, Ask, Call, EndStep, Hold, Moves, Note, Signalled, Wait
from cadre.engine.steps import step_in_work
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal import events as ev
from cadre.journal.arrivals import Arrival, ModelReplied
from cadre.journal.parts import JournalEvent
from cadre.journal.run import Run
from cadre.journal.steps import CallState
from cadre.kinds.kind import PlainKind
from cadre.protocol.messages import (
    Decision,
    Edit,
    ErrorInfo,
    Message,
    TimerFired,
)
from patient_kind.records import DECLARATION, Noted, Nudge, Nudged, PatientSpec, PatientState


class PatientKind(PlainKind):
    """`cadre.engine.kind.Kind` for patient agents."""

    name = DECLARATION.name

    def begin(self, run: Run, arrival: Arrival) -> Moves:
        assert run.task is not None
        return [Ask("act", run.task.forks.at if run.task.forks is not None else 1)]

    def replied(self, run: Run, reply: ModelReplied, arrival: Arrival) -> Moves:
        if not reply.calls:
            return self.went(run, arrival, ErrorInfo("unreadable-answer", "Call a tool."))
        if len(reply.calls) == 1 and reply.calls[0].name == FINAL_ANSWER:
            try:
                arguments = read_arguments(reply.calls[0])
            except ReadingError as error:
                return self.went(run, arrival, error.info)
            return [Answer(arguments.get("answer"), arguments)]
        step = step_in_work(run)
        noted = Note(Noted(step=step, calls=len(reply.calls)))
        if _section(run).ask and step == 1:
            return [noted, Hold("go", f"May I make {len(reply.calls)} calls?")]
        return [noted, Call(reply.calls)]

    def settled(self, run: Run, call: CallState | None, arrival: Arrival) -> Moves:
        if call is None or call.kind != "question":
            return super().settled(run, call, arrival)
        if isinstance(arrival.what, Decision) and arrival.what.verdict != "rejected":
            return [Call([ev.RequestedCall(name, arguments) for name, arguments in _state(run).asked])]
        return self.went(run, arrival, ErrorInfo("rejected", "A person did not want the calls."))

    def went(self, run: Run, arrival: Arrival, error: ErrorInfo | None = None) -> Moves:
        pause, go = _section(run).pause, _section(run).signal or None
        if pause or go:
            return [EndStep(error), Wait("pause", arrival.at + pause if pause else None, go)]
        return [EndStep(error), Ask("act", step_in_work(run) + 1)]

    def arrived(self, run: Run, what: Message | Signalled, arrival: Arrival) -> Moves | None:
        if isinstance(what, TimerFired):
            return [Ask("act", run.step + 1)]
        if isinstance(what, Signalled):
            hurried = Note(Nudged(text=f"{what.wait} ended by {what.signal}: {what.payload}"))
            return [hurried, Ask("act", run.step + 1)]
        return [Note(Nudged(text=what.text))] if isinstance(what, Nudge) else None

    def editable(self, run: Run) -> Editable | None:
        state = _state(run)
        return Editable("queue", state.version, state.wishes)

    def check_edit(self, run: Run, edit: Edit) -> None:
        _wishes_after(_state(run).wishes, edit.operations)

    def edited(self, run: Run, edit: Edit, arrival: Arrival) -> Moves:
        return [Note(Nudged(text=f"{len(_state(run).wishes)} wishes"))]

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
