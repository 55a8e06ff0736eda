"""Calls that wait for a person, as the list shows them: kept small, however large their arguments are."""

from typing import Any

import msgspec

from cadre.api.approvals import PendingCall
from cadre.journal.entry import Entry
from cadre.journal.events import ApprovalDecided, ApprovalRequested, CallDropped, CallRefused, RunFinished

MAX_ARGUMENTS_BYTES = 2048
"""The list keeps so much of a call's arguments as JSON."""

_MAX_VALUE_CHARS = 200


def pending_changes(
    entry: Entry, pending: dict[str, PendingCall]
) -> tuple[list[PendingCall], list[PendingCall]]:
    """The calls that an entry adds to the pending ones of its run, and those that it settles."""
    added: dict[str, PendingCall] = {}
    gone: dict[str, PendingCall] = {}
    for event in entry.events:
        match event:
            case ApprovalRequested():
                if event.call not in pending:
                    added[event.call] = _of_event(event, entry)
            case ApprovalDecided(call=call) | CallDropped(call=call) | CallRefused(call=call) if (
                call in pending
            ):
                gone[call] = pending[call]
            case RunFinished():
                added, gone = {}, dict(pending)
            case _:
                pass
    return list(added.values()), list(gone.values())


def _of_event(event: ApprovalRequested, entry: Entry) -> PendingCall:
    return _bounded(
        PendingCall(
            call=event.call,
            run=entry.run,
            tree=entry.tree,
            agent=entry.agent,
            name=event.name,
            kind=event.kind,
            arguments=event.arguments,
            reason=event.reason,
            requested_at=entry.at,
            expires_at=event.expires_at,
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
