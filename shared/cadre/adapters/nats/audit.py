"""The audit trail in JetStream: written to its end, read from its end, never changed."""

from typing import NamedTuple

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode, encode
from cadre.errors import UnreadableMessage
from cadre.protocol.access import AuditEntry
from cadre.protocol.topology import Subject, Topology


class StoredAudit(NamedTuple):
    """An entry and its sequence in the stream."""

    seq: int
    entry: AuditEntry | None
    """None when a newer gateway wrote it so that this version cannot read it."""


class NatsAudit:
    """The audit trail of a deployment. Every method raises RetryableError."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def append(self, entry: AuditEntry) -> None:
        """Store an entry; when it returns, the entry stays."""
        subject = self._topology.subject(Subject.AUDIT, action=entry.action.replace(".", "-"))
        await jetstream.append(self._nc, subject, encode(entry))

    async def newest(self, limit: int, before: int | None = None) -> list[StoredAudit]:
        """At most `limit` entries, newest first; with `before`, those below that sequence."""
        found = await jetstream.newest(self._nc, self._topology.audit_stream, limit, before)
        return [StoredAudit(held.seq, _entry(held.data)) for held in found]


def _entry(data: bytes) -> AuditEntry | None:
    try:
        found: AuditEntry = decode(data, AuditEntry)
    except UnreadableMessage:
        return None
    return found
