"""All journals as they are written: each entry of each shard, once and in order.

`Tail` reads for the index, and waits for it. `LiveTail` reads for those who follow runs, and for the ledger, which is
in memory: no database can hold it up.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.blobs import Noting, refs_in
from cadre.adapters.nats.reading.reader import OrderedReader
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.delivery.codec import decode, unpack_entry, unpack_record
from cadre.errors import BlobMissing, NewerSchema, RetryableError, UnreadableMessage
from cadre.journal.entry import Entry
from cadre.ports import Blobs, Stored
from cadre.protocol.messages import Erased, Head, Lifecycle, Task
from cadre.protocol.topology import Subject, Topology
from cadre.recent import Recent

log = logging.getLogger("cadre.tail")

T = TypeVar("T")

_BLOB_PAUSE_SECONDS = 1.0

_REMEMBERED_TREES = 2_000

_LARGE_BYTES = 16_384


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
    """The time it was stored, in Unix seconds by the server's clock."""
    is_file: bool = False
    """It is no entry, but a file of the tree's workspace."""
    imported: bool = False
    """It was not written here, but came with a run from elsewhere."""
    task: Task | None = None
    """It is no entry, but the task of a root run in its agent's queue."""


OnEntry = Callable[[Read], Awaitable[None]]

OnLifecycle = Callable[[int, Lifecycle], Awaitable[None]]
"""Called with the sequence of a record of a tree's lifecycle, and the record."""

Listener = Callable[[Stored], None]

Handle = Callable[[StoredMessage], Awaitable[None]]


_READS = ("journals", "files", "tasks")
"""Kinds of messages that a `Tail` reads from each shard."""


def reader_names(shards: int) -> list[tuple[int, str]]:
    """Return the shard and the name of each reader of a `Tail`, in the order of its positions."""
    return [(shard, f"{shard}/{kind}") for shard in range(shards) for kind in _READS]


class Decoded:
    """The latest entries that one of two tails has decoded, for the other one."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._reads = Recent[tuple[int, int], tuple[bytes, Read]](max(1, most))

    def keep(self, held: StoredMessage, read: Read) -> None:
        """Keep an entry that can be read, unless it is large."""
        if self._most and read.stored is not None and len(held.data) <= _LARGE_BYTES:
            self._reads[read.shard, read.seq] = (held.data, read)

    def take(self, shard: int, held: StoredMessage) -> Read | None:
        """Return what the message holds if it was kept, and forget it. A stream that was made again has other messages
        at the same places."""
        data, read = self._reads.pop((shard, held.seq), (b"", None))
        return read if data == held.data else None


class _Readers(ABC):
    """Runs ordered readers of all shards, and decodes what they read."""

    def __init__(self, nc: Client, topology: Topology, blobs: Blobs) -> None:
        self._nc = nc
        self._topology = topology
        self._blobs = blobs
        self.decoded = Decoded(0)
        """Shared by two tails that read the same."""
        self.on_newer: Callable[[str], None] | None = None
        """Called with a tree for each message of it that only a newer version can read."""
        self._readers: list[OrderedReader] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._has_failed = asyncio.Event()

    @property
    def positions(self) -> list[int]:
        """Return the sequences up to which each reader has read: those of the first shard, then of the next, and so
        on."""
        return [reader.position for reader in self._readers]

    async def caught_up(self) -> None:
        """Return once every shard has been read to an end."""
        await asyncio.gather(*(reader.caught_up.wait() for reader in self._readers))

    async def read_on(self, up_to: Sequence[int] = ()) -> None:
        """Return once everything that is in the streams at this moment was handed on, up to these positions where
        they are given. Raises BusUnavailable."""
        self.grow()
        goals: Sequence[int | None] = up_to or [None] * len(self._readers)
        # Positions of fewer shards are older than the others, which had nothing to read then.
        await asyncio.gather(*(reader.read_on(goal) for reader, goal in zip(self._readers, goals, strict=False)))

    @abstractmethod
    def grow(self) -> None:
        """Begin to read the shards that the topology has and that are not read yet, from their beginning."""

    def failure(self) -> BaseException | None:
        """Return why a reader has stopped; None as long as all of them read."""
        stopped = (task.exception() for task in self._tasks if task.done() and not task.cancelled())
        return next((error for error in stopped if error is not None), None)

    async def failed(self) -> None:
        """Raise what a reader stops with, at the time."""
        await self._has_failed.wait()
        if (failure := self.failure()) is not None:
            raise failure

    async def stop(self) -> None:
        """End the readers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._note_end)
        self._tasks.append(task)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._has_failed.set()

    def _reader(self, shard: int, subject: str, handle: Handle) -> OrderedReader:
        return OrderedReader(self._nc, self._topology.stream(shard), subject, 0, handle)

    async def _read_entry(self, shard: int, held: StoredMessage) -> Read:
        if (read := self.decoded.take(shard, held)) is not None:
            return read
        refs = refs_in(held.data)
        entry = await self._read_whole(held, refs)
        tree, _ = self._topology.parse(held.subject)
        stored = Stored(held.seq, entry) if entry is not None else None
        read = Read(shard, held.seq, tree, stored, refs, held.at, imported=held.imported)
        self.decoded.keep(held, read)
        return read

    async def _read_whole(self, held: StoredMessage, refs: set[str]) -> Entry | None:
        """Read an entry with what was spilled of it, and adds the blobs that it names to `refs`. Returns None for one
        that cannot be read: a bad entry must not hide all later ones."""
        noting = Noting(self._blobs)
        entry = await self._read_patiently(held, lambda: unpack_entry(held.data, noting))
        if entry is not None:
            refs |= noting.refs
        return entry

    async def _read_patiently(self, held: StoredMessage, read: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of `read` for a message, once the object store has what it needs; None for a message that
        cannot be read."""
        while True:
            try:
                return await read()
            except (UnreadableMessage, BlobMissing) as error:
                log.error("message %d on %s left out: %s", held.seq, held.subject, error)
                if isinstance(error, NewerSchema) and self.on_newer is not None:
                    self.on_newer(self._topology.parse(held.subject)[0])
                return None
            except RetryableError as error:
                log.warning("message %d on %s: %s", held.seq, held.subject, error)
                await asyncio.sleep(_BLOB_PAUSE_SECONDS)


class Tail(_Readers):
    """Three ordered readers per shard: of its journals, of its files, each of which waits for the journals before it,
    and of the tasks of root runs. A reader hands an entry on when `on_entry` has returned from the one before. While
    that waits for a database, the reader waits as well and holds one batch of messages at most."""

    def __init__(
        self,
        nc: Client,
        topology: Topology,
        blobs: Blobs,
        starter: str,
        on_entry: OnEntry,
        on_lifecycle: OnLifecycle,
    ) -> None:
        """`starter` is the sender of all root runs' tasks."""
        super().__init__(nc, topology, blobs)
        self._starter = starter
        self._on_entry = on_entry
        self._on_lifecycle = on_lifecycle
        self._may_read = asyncio.Event()
        self._reading = set[asyncio.Future[None]]()

    def start(self, after: Sequence[int] = (), *, held: bool = False) -> None:
        """Read on behind these positions, by default from the beginning: of each shard its journals, its files and its
        tasks. If it is `held`, nothing is read before `go_on`."""
        self.grow()
        if not held:
            self.go_on(after)

    def grow(self) -> None:
        """Begin to read the shards that the topology has and that are not read yet, from their beginning."""
        topology = self._topology
        for shard in range(len(self._readers) // len(_READS), topology.shards):
            journals = self._reader(shard, topology.journals_of_shard(shard), self._handler(shard))
            sent = topology.subject(Subject.INBOX, shard=shard, sender=self._starter)
            readers = (
                journals,
                self._reader(shard, topology.files_of_shard(shard), self._file_handler(shard, journals)),
                self._reader(shard, sent, self._task_handler(shard, journals)),
            )
            for reader in readers:
                self._readers.append(reader)
                self._spawn(self._read(reader), f"reader of {reader.stream}")

    def go_on(self, after: Sequence[int] = ()) -> None:
        """Begin to read behind these positions."""
        for reader, position in zip(self._readers, after, strict=False):
            reader.position = position
        self._may_read.set()

    async def hold(self) -> None:
        """Return when nothing is read any more, until `go_on`: what was not handed on to its end is read again."""
        self._may_read.clear()
        for reading in self._reading:
            reading.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        for reader in self._readers:
            reader.caught_up.clear()

    async def _read(self, reader: OrderedReader) -> None:
        while True:
            await self._may_read.wait()
            reading = asyncio.ensure_future(reader.run())
            self._reading.add(reading)
            try:
                await asyncio.wait({reading})
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                self._reading.discard(reading)
            if not reading.cancelled():
                reading.result()

    def _handler(self, shard: int) -> Handle:
        async def handle(held: StoredMessage) -> None:
            if not self._topology.is_lifecycle(held.subject):
                await self._on_entry(await self._read_entry(shard, held))
            elif (lifecycle := _lifecycle(held)) is not None:
                await self._on_lifecycle(held.seq, lifecycle)

        return handle

    def _file_handler(self, shard: int, journals: OrderedReader) -> Handle:
        async def handle(held: StoredMessage) -> None:
            # What a file belongs to is known by the journals before it.
            await journals.read_on(held.seq)
            if (tree := self._topology.tree_of_file(held.subject)) is not None:
                refs = refs_in(held.data)
                await self._on_entry(Read(shard, held.seq, tree, None, refs, held.at, is_file=True))

        return handle

    def _task_handler(self, shard: int, journals: OrderedReader) -> Handle:
        async def handle(held: StoredMessage) -> None:
            # Read from its start, a stream would have every old run queued first, and begun later.
            await journals.passed(held.seq)
            task = await self._read_task(held)
            if task is not None and task.run == task.tree:
                await self._on_entry(Read(shard, held.seq, task.tree, None, set(), held.at, task=task))

        return handle

    async def _read_task(self, held: StoredMessage) -> Task | None:
        """Read a task with what was spilled of it. Returns None for any other record, and for one that cannot be
        read."""
        if not _may_be_task(held):
            return None
        record = await self._read_patiently(held, lambda: unpack_record(held.data, self._blobs))
        return record if isinstance(record, Task) else None


class LiveTail(_Readers):
    """Runs one ordered reader of each shard's journals. Listeners get each entry first, then `on_entry` does.

    While a shard has much to be caught up with, one more reader begins at its end: listeners hear of what happens now.
    """

    def __init__(self, nc: Client, topology: Topology, blobs: Blobs, on_entry: OnEntry) -> None:
        super().__init__(nc, topology, blobs)
        self._on_entry = on_entry
        self.on_erased: Callable[[str], None] | None = None
        """Called with each tree that is erased from now on."""
        self._told: dict[int, int] = {}
        """By shard with a second reader: the sequence up to which listeners have heard of everything."""
        self._listeners: dict[str, set[Listener]] = {}
        self._last_live = Recent[str, int](_REMEMBERED_TREES)

    def start(self, after: Sequence[int], ends: Sequence[int]) -> None:
        """Read on behind these positions, one for each shard. `ends` are the last sequences of their streams."""
        for shard, (position, end) in enumerate(zip(after, ends, strict=True)):
            reader = self._begin(shard, position)
            if position < end:
                self._told[shard] = end
                self._spawn(self._bridge(shard, reader), f"bridge {shard}")

    def grow(self) -> None:
        """Begin to read the shards that the topology has and that are not read yet, from their beginning."""
        for shard in range(len(self._readers), self._topology.shards):
            self._begin(shard, 0)

    def _begin(self, shard: int, position: int) -> OrderedReader:
        reader = self._reader(shard, self._topology.journals_of_shard(shard), self._handler(shard))
        reader.position = position
        self._readers.append(reader)
        self._spawn(reader.run(), f"live reader of {reader.stream}")
        return reader

    @contextmanager
    def listen(self, tree: str, listener: Listener) -> Iterator[None]:
        """Call `listener`, inside the context, with every entry of the tree that is written from now on; with some
        of them twice."""
        listeners = self._listeners.setdefault(tree, set())
        listeners.add(listener)
        try:
            yield
        finally:
            listeners.discard(listener)
            if not listeners and self._listeners.get(tree) is listeners:
                del self._listeners[tree]

    def last_live(self, tree: str) -> int:
        """Return the sequence of the tree's last entry that was handed to listeners, if there were any; 0 where that
        was long ago."""
        return self._last_live.get(tree, 0)

    async def _bridge(self, shard: int, reader: OrderedReader) -> None:
        """Tell listeners what is written, until the shard's reader has come as far."""
        ahead = self._reader(shard, self._topology.journals_of_shard(shard), self._teller(shard))
        ahead.position = self._told[shard]
        telling = asyncio.create_task(ahead.run(), name=f"reader of {ahead.stream}")
        catching_up = asyncio.ensure_future(reader.caught_up.wait())
        try:
            await asyncio.wait({telling, catching_up}, return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
        finally:
            telling.cancel()
            catching_up.cancel()
            del self._told[shard]

    def _handler(self, shard: int) -> Handle:
        async def handle(held: StoredMessage) -> None:
            if self._topology.is_lifecycle(held.subject):
                self._tell_lifecycle(shard, held)
                return
            read = await self._read_entry(shard, held)
            self._tell(shard, read.stored)
            await self._on_entry(read)

        return handle

    def _teller(self, shard: int) -> Handle:
        async def handle(held: StoredMessage) -> None:
            if self._topology.is_lifecycle(held.subject):
                self._tell_lifecycle(shard, held)
                return
            tree, _ = self._topology.parse(held.subject)
            if tree in self._listeners and (entry := await self._read_whole(held, set())) is not None:
                self._tell(shard, Stored(held.seq, entry))

        return handle

    def _tell(self, shard: int, stored: Stored | None) -> None:
        if stored is not None and self._is_news(shard, stored.seq):
            tree = stored.entry.tree
            self._last_live[tree] = stored.seq
            for listener in list(self._listeners.get(tree, ())):
                listener(stored)

    def _tell_lifecycle(self, shard: int, held: StoredMessage) -> None:
        lifecycle = _lifecycle(held)
        if self._is_news(shard, held.seq) and isinstance(lifecycle, Erased) and self.on_erased is not None:
            self.on_erased(lifecycle.tree)

    def _is_news(self, shard: int, seq: int) -> bool:
        """Take note that listeners hear of what lies there; false when they have."""
        if shard not in self._told:
            return True
        is_news = seq > self._told[shard]
        self._told[shard] = max(self._told[shard], seq)
        return is_news


def _may_be_task(held: StoredMessage) -> bool:
    try:
        return msgspec.json.decode(held.data, type=Head).type in ("task", "spilled")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True  # decoding reports it


def _lifecycle(held: StoredMessage) -> Lifecycle | None:
    try:
        lifecycle: Lifecycle = decode(held.data, Lifecycle)
    except UnreadableMessage as error:
        log.error("message %d on %s left out: %s", held.seq, held.subject, error)
        return None
    return lifecycle


class StreamState(NamedTuple):
    """The stream of a shard."""

    created: str
    """The time it was created: another time means another stream."""
    end: int
    """The sequence of its last message."""


async def stream_states(nc: Client, topology: Topology, first: int = 0) -> list[StreamState]:
    """Return the streams of all shards, from the `first` on. Raises BusUnavailable."""
    found = []
    for shard in range(first, topology.shards):
        answer = await jetstream.ask(nc, "asking for the streams", f"STREAM.INFO.{topology.stream(shard)}")
        found.append(StreamState(answer["created"], answer["state"]["last_seq"]))
    return found
