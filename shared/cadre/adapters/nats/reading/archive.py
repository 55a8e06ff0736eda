"""Read journals as bytes and write them to another place unchanged, except for back-pointers to the new places."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import HEADERS, SPILL_BYTES, encode
from cadre.ports import Blobs
from cadre.protocol.messages import Head, Spilled
from cadre.protocol.topology import Topology


class RawEntry(NamedTuple):
    """A journal entry as it was written, whatever its size."""

    seq: int
    data: bytes


class NatsArchive:
    """Reads and writes the entries of journals as bytes. Reading raises BusUnavailable and BlobMissing."""

    def __init__(self, nc: Client, topology: Topology, blobs: Blobs, history: History) -> None:
        self._nc = nc
        self._topology = topology
        self._blobs = blobs
        self._history = history

    async def entries(self, tree: str, *, at_least: int = 0) -> AsyncIterator[RawEntry]:
        """Yields all entries of the tree's journals in stream order; see History.pages for `at_least`."""
        async for page in self._history.raw_pages(tree, at_least=at_least):
            for held in page:
                yield RawEntry(held.seq, await self._history.whole(held))

    async def append(self, tree: str, run: str, data: bytes, fence: int) -> int:
        """Appends an entry behind the one at `fence`; returns its sequence. Raises Fenced, RetryableError."""
        head = msgspec.json.decode(data, type=_EntryHead)
        if len(data) > SPILL_BYTES:
            ref = await self._blobs.put(data)
            identity = f"{run}:entry:{head.n}"
            data = encode(Spilled(id=identity, tree=tree, run=run, at=head.at, ref=ref, size=len(data)))
        headers = HEADERS | {"Cadre-Schema": str(head.v), jetstream.IMPORTED: "1"}
        subject = self._topology.journal(tree, run)
        return await jetstream.append(self._nc, subject, data, expect=fence, headers=headers)


class _EntryHead(Head):
    n: int = 0
    at: float = 0.0
