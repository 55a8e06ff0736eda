"""Calls that were decided, as the list shows them: kept as small as those that wait, the newest of each tree."""

import msgspec

from cadre.api.approvals import ApprovalDecision, PendingCall
from cadre.journal.entry import Entry
from cadre.journal.events import ApprovalDecided
from cadre_gateway.index.pending_approvals import MAX_ARGUMENTS_BYTES

MAX_DECIDED = 200
"""Decided calls that the list keeps of one tree; the journals have them all."""


class DecidedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waited for a person, and what became of it."""

    asked: PendingCall
    decision: ApprovalDecision

    @property
    def place(self) -> tuple[float, str]:
        """Its place in the list."""
        return self.decision.at or 0.0, self.asked.call


def decided_in(entry: Entry, pending: dict[str, PendingCall]) -> list[DecidedCall]:
    """The calls of its run's pending ones that an entry tells the decision of."""
    return [
        _bounded(DecidedCall(asked=pending[event.call], decision=decision_of(event, entry.at)))
        for event in entry.events
        if isinstance(event, ApprovalDecided) and event.call in pending
    ]


def decision_of(event: ApprovalDecided, at: float) -> ApprovalDecision:
    """The decision as the API tells it."""
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


def _bounded(call: DecidedCall) -> DecidedCall:
    if len(msgspec.json.encode(call.decision)) <= MAX_ARGUMENTS_BYTES:
        return call
    short = msgspec.structs.replace(
        call.decision, arguments=None, edits=[], feedback=call.decision.feedback[:MAX_ARGUMENTS_BYTES]
    )
    return DecidedCall(asked=msgspec.structs.replace(call.asked, cut=True), decision=short)
