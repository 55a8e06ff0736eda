"""Marks in JetStream: one message per suspect, on a subject of its own beside the effects of its tree."""

from __future__ import annotations

import logging

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode, encode
from cadre.errors import UnreadableMessage
from cadre.ports import Mark
from cadre.protocol.topology import Topology

log = logging.getLogger("cadre.trial")

_CLEARED = "1s"


class NatsMarks:
    """ports.Marks on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def read(self, tree: str, seq: int) -> tuple[Mark, int] | None:
        stream = self._topology.stream_of(tree)
        held = await jetstream.last(self._nc, stream, self._topology.trial(tree, seq))
        if held is None:
            return None
        if not held.data:
            return Mark(seq=seq), held.seq
        try:
            return decode(held.data, Mark), held.seq
        except UnreadableMessage as error:
            log.warning("mark on %s ignored: %s", held.subject, error)
            return Mark(seq=seq), held.seq

    async def write(self, tree: str, mark: Mark, fence: int) -> int:
        subject = self._topology.trial(tree, mark.seq)
        return await jetstream.append(
            self._nc, subject, encode(mark), expect=fence, headers={jetstream.ROLLUP: "sub"}
        )

    async def clear(self, tree: str, seq: int) -> None:
        # Nothing in its place, which soon goes by itself: removing messages is not an executor's right.
        subject = self._topology.trial(tree, seq)
        headers = {jetstream.ROLLUP: "sub", jetstream.TTL: _CLEARED}
        await jetstream.append(self._nc, subject, b"", headers=headers)
