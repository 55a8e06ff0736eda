"""Journals in JetStream: one message per append, fenced by the subject's last sequence.

A journal is read with one leader read of its last entry and one pipelined round of gets along the
back-pointers that it carries: what else the stream holds does not matter.
"""

import asyncio
from collections.abc import Callable

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.replica_tries import ReplicaTries
from cadre.delivery.codec import HEADERS, pack_entry, unpack_entry
from cadre.errors import BlobMissing, BusUnavailable
from cadre.journal.entry import Entry
from cadre.ports import Appended, Blobs, Stored
from cadre.protocol.topology import Topology

_REPLICA_SECONDS = 5.0
"""For a replica to catch up with the leader that named an entry."""


class NatsJournal:
    """ports.Journal on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology, blobs: Blobs) -> None:
        self._nc = nc
        self._topology = topology
        self._blobs = blobs

    async def read(self, tree: str, run: str) -> list[Stored]:
        stream = self._topology.stream_of(tree)
        head = await jetstream.last(self._nc, stream, self._topology.journal(tree, run))
        if head is None:
            return []
        try:
            entry = await unpack_entry(head.data, self._blobs)
            before = await asyncio.gather(*(self._get(stream, seq) for seq in entry.prev))
        except BlobMissing:
            fate = await jetstream.last(self._nc, stream, self._topology.fate(tree))
            if fate is not None and fate.seq > head.seq:
                return []  # the tree is being erased, blobs first
            raise
        return [*before, Stored(head.seq, entry, len(head.data))]

    async def append(
        self,
        entry: Entry,
        fence: int,
        *,
        before: str = "",
        ends_timer: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Appended:
        headers = HEADERS
        if ends_timer is not None:
            timer = self._topology.timer(entry.tree, entry.run, ends_timer)
            headers = {**HEADERS, jetstream.SCHEDULE_NEXT: "purge", jetstream.SCHEDULER: timer}
        data, hash_ = await pack_entry(entry, before, self._blobs)
        subject = self._topology.journal(entry.tree, entry.run)
        seq = await jetstream.append(
            self._nc, subject, data, expect=fence, headers=headers, meanwhile=meanwhile
        )
        return Appended(seq, len(data), hash_)

    async def _get(self, stream: str, seq: int) -> Stored:
        async for _ in ReplicaTries(_REPLICA_SECONDS):
            held = await jetstream.get(self._nc, stream, seq)
            if held is not None:
                return Stored(seq, await unpack_entry(held.data, self._blobs), len(held.data))
        raise BusUnavailable(f"reading entry {seq} of {stream}", "no replica has it")
