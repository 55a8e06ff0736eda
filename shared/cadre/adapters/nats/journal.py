"""Journals in JetStream: one message per append, fenced by the subject's last sequence.

A journal is read with one leader read of its last entry and pipelined rounds of gets along the back-pointers of the
entries read (one round up to 32 entries, two up to 1,024): what else the stream holds does not matter.
"""

import asyncio
from collections.abc import Callable, Sequence

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import ReplicaTries
from cadre.delivery.codec import HEADERS, pack_entry, unpack_entry
from cadre.delivery.hash_chain import whole_journal
from cadre.delivery.retry import retry, store_surely
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
            last = Stored(head.seq, await unpack_entry(head.data, self._blobs))
            return await whole_journal(last, lambda seqs: self._get_all(stream, seqs))
        except BlobMissing:
            lifecycle = await jetstream.last(self._nc, stream, self._topology.lifecycle(tree))
            if lifecycle is not None and lifecycle.seq > head.seq:
                return []  # the tree is being erased, blobs first
            raise

    async def last(self, tree: str, run: str) -> int:
        stream = self._topology.stream_of(tree)
        head = await jetstream.last(self._nc, stream, self._topology.journal(tree, run))
        return head.seq if head is not None else 0

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
        data, hash_ = await retry(lambda: pack_entry(entry, before, self._blobs))
        subject = self._topology.journal(entry.tree, entry.run)

        async def store() -> int:
            return await jetstream.append(self._nc, subject, data, expect=fence, headers=headers, meanwhile=meanwhile)

        async def last() -> tuple[int, bytes] | None:
            head = await jetstream.last(self._nc, self._topology.stream_of(entry.tree), subject)
            return None if head is None else (head.seq, head.data)

        return Appended(await store_surely(store, last, data), hash_)

    async def _get_all(self, stream: str, seqs: Sequence[int]) -> list[Stored]:
        return await asyncio.gather(*(self._get(stream, seq) for seq in seqs))

    async def _get(self, stream: str, seq: int) -> Stored:
        async for _ in ReplicaTries(_REPLICA_SECONDS):
            held = await jetstream.get(self._nc, stream, seq)
            if held is not None:
                return Stored(seq, await unpack_entry(held.data, self._blobs))
        raise BusUnavailable(f"reading entry {seq} of {stream}", "no replica has it")
