"""The live end of all journals: each entry of each shard, once and in order, for this process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nats.aio.client import Client

from cadre.adapters.nats.objects.blob_refs import Noting, refs_in
from cadre.adapters.nats.reading.reader import OrderedReader
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.delivery.codec import decode, unpack_entry
from cadre.errors import BlobMissing, RetryableError, UnreadableMessage
from cadre.journal.entry import Entry
from cadre.ports import Blobs, Stored
from cadre.protocol.fates import Fate
from cadre.protocol.topology import Topology

log = logging.getLogger("cadre.tail")

_BLOB_PAUSE_SECONDS = 1.0


class Read(NamedTuple):
    """An entry as the tail came upon it."""

    shard: int
    seq: int
    tree: str
    stored: Stored | None
    """None when it cannot be read."""
    refs: set[str]
    """Blobs that it names."""
    at: float
    """When it was stored, in Unix seconds by the server's clock."""
    is_file: bool = False
    """It is no entry, but a file of the tree's workspace."""
    imported: bool = False
    """It was not written here, but came with a run from elsewhere."""


OnEntry = Callable[[Read], Awaitable[None]]

OnFate = Callable[[int, Fate], Awaitable[None]]
"""Called with the sequence of a record of a tree's fate, and the record."""

Listener = Callable[[Stored], None]


class Tail:
    """One ordered reader per shard. `on_entry` hears of each entry before any listener does."""

    def __init__(
        self, nc: Client, topology: Topology, blobs: Blobs, on_entry: OnEntry, on_fate: OnFate
    ) -> None:
        self._nc = nc
        self._topology = topology
        self._blobs = blobs
        self._on_entry = on_entry
        self._on_fate = on_fate
        self._readers: list[OrderedReader] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: dict[str, set[Listener]] = {}

    def start(self, after: list[int]) -> None:
        """Reads on behind the given sequence of each shard; 0 is the beginning."""
        for shard in range(self._topology.shards):
            reader = OrderedReader(
                self._nc,
                self._topology.stream(shard),
                [self._topology.journals_of_shard(shard), self._topology.files_of_shard(shard)],
                after[shard],
                self._handler(shard),
            )
            self._readers.append(reader)
            task = asyncio.create_task(reader.run(), name=f"tail of {self._topology.stream(shard)}")
            task.add_done_callback(_tell_of_failure)
            self._tasks.append(task)

    @property
    def positions(self) -> list[int]:
        """The sequence of each shard up to which it was read."""
        return [reader.position for reader in self._readers]

    def behind(self) -> list[int]:
        """Returns the shards that are still being caught up with."""
        return [shard for shard, reader in enumerate(self._readers) if not reader.caught_up.is_set()]

    async def caught_up(self) -> None:
        """Returns once every shard has been read to an end."""
        await asyncio.gather(*(reader.caught_up.wait() for reader in self._readers))

    async def read_on(self) -> None:
        """Returns once everything that is in the streams at this moment was handed on. Raises BusUnavailable."""
        await asyncio.gather(*(reader.read_on() for reader in self._readers))

    def failure(self) -> BaseException | None:
        """Returns why a reader has stopped; None as long as all of them read."""
        stopped = (task.exception() for task in self._tasks if task.done() and not task.cancelled())
        return next(stopped, None)

    @contextmanager
    def listen(self, tree: str, listener: Listener) -> Iterator[None]:
        """Calls `listener`, inside the context, with every entry of the tree that is read from now on."""
        listeners = self._listeners.setdefault(tree, set())
        listeners.add(listener)
        try:
            yield
        finally:
            listeners.discard(listener)
            if not listeners and self._listeners.get(tree) is listeners:
                del self._listeners[tree]

    async def stop(self) -> None:
        """Ends the readers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _handler(self, shard: int) -> Callable[[StoredMessage], Awaitable[None]]:
        async def handle(held: StoredMessage) -> None:
            if self._topology.is_fate(held.subject):
                await self._read_fate(held)
                return
            refs = refs_in(held.data)
            if (of_file := self._topology.tree_of_file(held.subject)) is not None:
                await self._on_entry(Read(shard, held.seq, of_file, None, refs, held.at, is_file=True))
                return
            entry = await self._read_whole(held, refs)
            tree, _ = self._topology.parse(held.subject)
            if entry is None:
                await self._on_entry(Read(shard, held.seq, tree, None, refs, held.at))
                return
            stored = Stored(held.seq, entry, len(held.data))
            await self._on_entry(Read(shard, held.seq, tree, stored, refs, held.at, imported=held.imported))
            for listener in list(self._listeners.get(entry.tree, ())):
                listener(stored)

        return handle

    async def _read_fate(self, held: StoredMessage) -> None:
        try:
            fate: Fate = decode(held.data, Fate)
        except UnreadableMessage as error:
            log.error("message %d on %s left out: %s", held.seq, held.subject, error)
            return
        await self._on_fate(held.seq, fate)

    async def _read_whole(self, held: StoredMessage, refs: set[str]) -> Entry | None:
        """Reads an entry with what was spilled of it, and adds the blobs that it names to `refs`. Returns None for one
        that cannot be read: a bad entry must not hide all later ones."""
        noting = Noting(self._blobs)
        while True:
            try:
                entry = await unpack_entry(held.data, noting)
                refs |= noting.refs
                return entry
            except (UnreadableMessage, BlobMissing) as error:
                log.error("entry %d on %s left out: %s", held.seq, held.subject, error)
                return None
            except RetryableError as error:
                log.warning("entry %d on %s: %s", held.seq, held.subject, error)
                await asyncio.sleep(_BLOB_PAUSE_SECONDS)


def _tell_of_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("%s has stopped: this process must be started again", task.get_name(), exc_info=error)


async def identities(nc: Client, topology: Topology) -> list[str]:
    """Returns when each shard's stream was created: another time means another stream. Raises BusUnavailable."""
    return [
        (await jetstream.ask(nc, "asking for the streams", f"STREAM.INFO.{topology.stream(shard)}"))[
            "created"
        ]
        for shard in range(topology.shards)
    ]
