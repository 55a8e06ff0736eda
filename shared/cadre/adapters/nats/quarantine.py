"""Keeps quarantine records in JetStream: each on a subject of its own beside the effects of its tree."""

import logging

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode, encode
from cadre.errors import UnreadableMessage
from cadre.ports import QuarantineRecord
from cadre.protocol.subjects import Subject
from cadre.protocol.topology import Topology

log = logging.getLogger("cadre.trial")

_CLEARED_TTL = "1s"


class NatsQuarantine:
    """Implements `ports.QuarantineStore` on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def read(self, tree: str, seq: int) -> tuple[QuarantineRecord, int] | None:
        stream, subject = self._place(tree, seq)
        held = await jetstream.last(self._nc, stream, subject)
        if held is None:
            return None
        if not held.data:
            return QuarantineRecord(seq=seq), held.seq
        try:
            return decode(held.data, QuarantineRecord), held.seq
        except UnreadableMessage as error:
            log.warning("mark on %s ignored: %s", held.subject, error)
            return QuarantineRecord(seq=seq), held.seq

    async def write(self, tree: str, record: QuarantineRecord, fence: int) -> int:
        _, subject = self._place(tree, record.seq)
        return await jetstream.append(
            self._nc, subject, encode(record), expect=fence, headers={jetstream.ROLLUP: "sub"}
        )

    async def clear(self, tree: str, seq: int) -> None:
        # Nothing in its place, which soon goes by itself: removing messages is not an executor's right.
        _, subject = self._place(tree, seq)
        headers = {jetstream.ROLLUP: "sub", jetstream.TTL: _CLEARED_TTL}
        await jetstream.append(self._nc, subject, b"", headers=headers)

    def _place(self, tree: str, seq: int) -> tuple[str, str]:
        return self._topology.stream_of(tree), self._topology.quarantine(tree, seq)


class AutomationQuarantine(NatsQuarantine):
    """The same for messages that are about no tree: ticks, events and deliveries, in the stream that they lie in."""

    def _place(self, tree: str, seq: int) -> tuple[str, str]:
        return self._topology.automation_stream, self._topology.subject(Subject.AUTOMATION_TRIAL, seq=seq)
