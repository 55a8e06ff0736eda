"""Calls that wait, or have waited, for a person: read from the journals of their runs."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from cadre.api.approvals import ApprovalDecision
from cadre.engine.calls.approval import held_call
from cadre.engine.calls.call_check import MEMBER_SCHEMA
from cadre.engine.fold import fold
from cadre.journal.entry import Entry
from cadre.journal.events import ApprovalDecided, ApprovalRequested
from cadre.journal.run import Phase, Run
from cadre.journal.steps import CallState
from cadre.ports import Journal
from cadre.protocol.topology import parent_of, tree_of
from cadre.views.held_calls import decision_of
from cadre_gateway.requests.problems import unknown_call

_CALL_ID = re.compile(r"[A-Za-z0-9-]{1,64}(?:_\d{1,9}_\d{1,9}){1,64}")


class HeldCall(NamedTuple):
    """A call as the leader of its run's journal has it."""

    id: str
    run: Run
    entries: list[Entry]
    """All entries of the run."""
    pending: CallState | None
    """The call itself while it waits."""


class CallHistory(NamedTuple):
    """What a journal says of a call that was held back."""

    entry: Entry
    """The entry of the request."""
    request: ApprovalRequested
    ruled: ApprovalDecision | None


@dataclass(frozen=True)
class HeldCalls:
    """Reads calls that were held back."""

    journal: Journal

    async def read(self, call: str) -> HeldCall:
        """Raises a 404 problem when there is no such run, RetryableError."""
        run = parent_of(call)
        if run is None or not _CALL_ID.fullmatch(call):
            raise unknown_call(call)
        tree = tree_of(call)
        entries = [stored.entry for stored in await self.journal.read(tree, run)]
        if not entries:
            raise unknown_call(call)
        state = fold(entries, run, tree)
        pending = held_call(state, call) if state.phase is not Phase.DONE else None
        return HeldCall(call, state, entries, pending)


def history_of(held: HeldCall) -> CallHistory:
    """Return the request for a person's decision, and the decision if there is one. Raises a 404 problem for a
    call that was never held back."""
    request, ruled = _search(held.entries, held.id)
    if request is None:
        raise unknown_call(held.id)
    return CallHistory(*request, ruled)


def ruled_in(entry: Entry, call: str) -> ApprovalDecision | None:
    """The decision on the call that an entry tells of."""
    for event in entry.events:
        if isinstance(event, ApprovalDecided) and event.call == call:
            return decision_of(event, entry.at)
    return None


def schema_in(run: Run, name: str, kind: str, pending: CallState | None = None) -> dict[str, Any] | None:
    """JSON Schema of the arguments, as the run was offered the tool or member; of a call's question, of the answer."""
    if pending is not None and pending.pause is not None:
        return pending.pause.unfinished.schema
    if kind == "member":
        return MEMBER_SCHEMA
    if kind == "question":
        return None
    return run.tools[name].input_schema if name in run.tools else None


def _search(
    entries: list[Entry], call: str
) -> tuple[tuple[Entry, ApprovalRequested] | None, ApprovalDecision | None]:
    request, ruled = None, None
    for entry in entries:
        for event in entry.events:
            if isinstance(event, ApprovalRequested) and event.call == call:
                request = (entry, event)
        ruled = ruled or ruled_in(entry, call)
    return request, ruled
