"""Calls that wait for a person, or were decided, as lists show them: kept small, however large their arguments are."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from cadre.api.runs import ApprovalDecision, PendingCall
from cadre.journal import events as ev
from cadre.journal.entry import Entry
from cadre.protocol.tagged import for_people
from cadre.views.words import brief, call_text

MAX_ARGUMENTS_BYTES = 2048
"""Lists keep so much of a call's arguments as JSON."""

_MAX_VALUE_CHARS = 200
_MAX_HEADLINE_CHARS = 300

_SETTLE = (ev.ApprovalDecided, ev.CallDropped, ev.CallRefused)


class DecidedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waited for a person, and what became of it."""

    asked: PendingCall
    decision: ApprovalDecision

    @property
    def place(self) -> tuple[float, str]:
        """Its place in the list."""
        return self.decision.at or 0.0, self.asked.call


class CallChanges(NamedTuple):
    """The changes that an entry makes to the calls of its run that wait for a person."""

    held: Sequence[PendingCall]
    """They wait from now on."""
    gone: Sequence[PendingCall]
    """They wait no longer: decided, dropped, refused, or their run has ended."""
    decided: Sequence[DecidedCall]
    """Those of them that were decided."""


NO_CHANGES = CallChanges((), (), ())


def call_changes(entry: Entry, pending: dict[str, PendingCall]) -> CallChanges:
    """Return the changes that an entry makes; `pending` are the calls of its run that wait, by id."""
    added: dict[str, PendingCall] = {}
    gone: dict[str, PendingCall] = {}
    decided: list[DecidedCall] = []
    origins: dict[str, dict[str, list[str]]] = {}
    for event in entry.events:
        if type(event) is ev.ApprovalRequested:
            if event.call not in pending:
                added[event.call] = _of_event(event, entry, origins.get(event.call, {}))
        elif type(event) is ev.PolicyDecided:
            origins[event.call] = event.origins
        elif pending and type(event) in _SETTLE:
            call: str = event.call  # type: ignore[attr-defined]
            if call in pending:
                gone[call] = pending[call]
                if type(event) is ev.ApprovalDecided:
                    decided.append(_short(DecidedCall(asked=pending[call], decision=decision_of(event, entry.at))))
        elif type(event) is ev.RunFinished:
            added, gone = {}, dict(pending)
    if not added and not gone:
        return NO_CHANGES
    return CallChanges(list(added.values()), list(gone.values()), decided)


def persons(calls: Iterable[PendingCall]) -> int:
    """Return how many of the calls wait for a person, not for the program that started the run."""
    return sum(call.kind != "function" for call in calls)


def decision_of(event: ev.ApprovalDecided, at: float) -> ApprovalDecision:
    """Return the decision as the API shows it; `at` is the time of its entry in Unix seconds."""
    return ApprovalDecision(
        call=event.call,
        verdict=event.verdict,
        by=event.sender,
        at=at,
        feedback=event.feedback,
        tool=event.name,
        arguments=event.arguments,
        edits=event.edits,
    )


def headline_of(event: ev.ApprovalRequested, entry: Entry) -> str:
    """Return what the request of this entry asks for, in one line."""
    return brief(asked_by(event, entry), _MAX_HEADLINE_CHARS)


def asked_by(event: ev.ApprovalRequested, entry: Entry) -> str:
    """Return what the request of this entry asks for: the whole question, the tool's `approval_text`, or the call."""
    asks_itself = any(type(one) is ev.ToolPaused and one.call == event.call for one in entry.events)
    if event.kind == "question" or asks_itself:
        return event.reason
    return event.text or call_text(event.name, for_people(event.arguments), _MAX_HEADLINE_CHARS)


def _of_event(event: ev.ApprovalRequested, entry: Entry, origins: dict[str, list[str]]) -> PendingCall:
    return _bounded(
        PendingCall(
            call=event.call,
            run=entry.run,
            tree=entry.tree,
            agent=entry.agent,
            name=event.name,
            kind=event.kind,
            headline=headline_of(event, entry),
            arguments=event.arguments,
            reason=event.reason,
            requested_at=entry.at,
            expires_at=event.expires_at,
            rule=event.rule,
            decided_by=event.by,
            origins=origins,
        )
    )


def _bounded(call: PendingCall) -> PendingCall:
    if len(msgspec.json.encode(call.arguments)) <= MAX_ARGUMENTS_BYTES:
        return call
    kept: dict[str, Any] = {}
    left = MAX_ARGUMENTS_BYTES
    for name, value in call.arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        shown = value if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"
        left -= len(msgspec.json.encode({name: shown}))
        if left < 0:
            break
        kept[name] = shown
    return msgspec.structs.replace(call, arguments=kept, cut=True)


def _short(call: DecidedCall) -> DecidedCall:
    if len(msgspec.json.encode(call.decision)) <= MAX_ARGUMENTS_BYTES:
        return call
    decision = msgspec.structs.replace(
        call.decision, arguments=None, edits=[], feedback=call.decision.feedback[:MAX_ARGUMENTS_BYTES]
    )
    return DecidedCall(asked=msgspec.structs.replace(call.asked, cut=True), decision=decision)
