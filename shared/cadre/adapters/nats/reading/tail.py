"""The live end of all journals: each entry of each shard, once and in order, for this process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.objects.blob_refs import Noting, refs_in
from cadre.adapters.nats.reading.reader import OrderedReader
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.delivery.codec import decode, unpack_entry, unpack_record
from cadre.errors import BlobMissing, NewerSchema, RetryableError, UnreadableMessage
from cadre.journal.entry import Entry
from cadre.ports import Blobs, Stored
from cadre.protocol.fates import Erased, Fate
from cadre.protocol.messages import Head, Task
from cadre.protocol.topology import Subject, Topology

log = logging.getLogger("cadre.tail")

T = TypeVar("T")

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
    task: Task | None = None
    """It is no entry, but the task of a root run in its agent's queue."""


OnEntry = Callable[[Read], Awaitable[None]]

OnFate = Callable[[int, Fate], Awaitable[None]]
"""Called with the sequence of a record of a tree's fate, and the record."""

Listener = Callable[[Stored], None]

Handle = Callable[[StoredMessage], Awaitable[None]]


READERS_PER_SHARD = 3
"""One of its journals, one of its files, one of the tasks of root runs."""


class Tail:
    """Three ordered readers per shard: of its journals, of its files, each of which waits for the journals before it,
    and of the tasks of root runs. `on_entry` hears of each entry before any listener does.

    While a shard has much to be caught up with, one more reader begins at its end: listeners hear of what happens now.
    """

    def __init__(
        self, nc: Client, topology: Topology, blobs: Blobs, starter: str, on_entry: OnEntry, on_fate: OnFate
    ) -> None:
        """`starter` is the sender of all root runs' tasks."""
        self._nc = nc
        self._starter = starter
        self._topology = topology
        self._blobs = blobs
        self._on_entry = on_entry
        self._on_fate = on_fate
        self.on_erased: Callable[[str], None] | None = None
        """Called with each tree that is erased from now on."""
        self.on_newer: Callable[[str], None] | None = None
        """Called with a tree for each message of it that only a newer version can read."""
        self._readers: list[OrderedReader] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._may_read = asyncio.Event()
        self._told: dict[int, int] = {}
        """By shard with a third reader: the sequence up to which listeners have heard of everything."""
        self._listeners: dict[str, set[Listener]] = {}

    def start(self, after: Sequence[int] = (), ends: Sequence[int] = (), *, held: bool = False) -> None:
        """Reads on behind these `positions`, by default from the beginning. `ends` are the last sequences of the
        shards' streams, where they are known. If it is `held`, listeners hear of what is written from there on, and
        nothing else is read before `go_on`."""
        shards, topology = range(self._topology.shards), self._topology
        journals = [
            self._reader(shard, topology.journals_of_shard(shard), self._handler(shard)) for shard in shards
        ]
        files = [
            self._reader(shard, topology.files_of_shard(shard), self._file_handler(shard, journals[shard]))
            for shard in shards
        ]
        tasks = [
            self._reader(
                shard,
                topology.subject(Subject.INBOX, shard=shard, sender=self._starter),
                self._task_handler(shard, journals[shard]),
            )
            for shard in shards
        ]
        self._readers = [*journals, *files, *tasks]
        self._tasks = [
            asyncio.create_task(self._read(one), name=f"reader of {one.stream}") for one in self._readers
        ]
        if not held:
            self.go_on(after)
        for shard, (reader, end) in enumerate(zip(journals, ends, strict=False)):
            if held or reader.position < end:
                self._told[shard] = end
                self._tasks.append(asyncio.create_task(self._bridge(shard, reader), name=f"bridge {shard}"))

    def go_on(self, after: Sequence[int] = ()) -> None:
        """Begins to read behind these `positions`."""
        for reader, position in zip(self._readers, after, strict=False):
            reader.position = position
        self._may_read.set()

    @property
    def positions(self) -> list[int]:
        """The sequences up to which it was read: the journals of all shards, then their files, then their tasks."""
        return [reader.position for reader in self._readers]

    async def caught_up(self) -> None:
        """Returns once every shard has been read to an end."""
        await asyncio.gather(*(reader.caught_up.wait() for reader in self._readers))

    async def read_on(self, up_to: Sequence[int] = ()) -> None:
        """Returns once everything that is in the streams at this moment was handed on, up to these positions where
        they are given. Raises BusUnavailable."""
        goals: Sequence[int | None] = up_to or [None] * len(self._readers)
        await asyncio.gather(
            *(reader.read_on(goal) for reader, goal in zip(self._readers, goals, strict=True))
        )

    def failure(self) -> BaseException | None:
        """Returns why a reader has stopped; None as long as all of them read."""
        stopped = (task.exception() for task in self._tasks if task.done() and not task.cancelled())
        return next((error for error in stopped if error is not None), None)

    async def failed(self) -> None:
        """Raises what a reader stops with, at the time."""
        pending = set(self._tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled():
                    task.result()

    @contextmanager
    def listen(self, tree: str, listener: Listener) -> Iterator[None]:
        """Calls `listener`, inside the context, with every entry of the tree that is written from now on; with some
        of them twice."""
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

    def _reader(self, shard: int, subject: str, handle: Handle) -> OrderedReader:
        return OrderedReader(self._nc, self._topology.stream(shard), subject, 0, handle)

    async def _read(self, reader: OrderedReader) -> None:
        await self._may_read.wait()
        await reader.run()

    async def _bridge(self, shard: int, reader: OrderedReader) -> None:
        """Tells listeners what is written, until the shard's reader has come as far."""
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
            if self._topology.is_fate(held.subject):
                if (fate := _fate(held)) is not None:
                    await self._on_fate(held.seq, fate)
                    self._tell_fate(shard, held.seq, fate)
                return
            refs = refs_in(held.data)
            entry = await self._read_whole(held, refs)
            tree, _ = self._topology.parse(held.subject)
            stored = Stored(held.seq, entry, len(held.data)) if entry is not None else None
            await self._on_entry(Read(shard, held.seq, tree, stored, refs, held.at, imported=held.imported))
            self._tell(shard, stored)

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

    def _teller(self, shard: int) -> Handle:
        async def handle(held: StoredMessage) -> None:
            if self._topology.is_fate(held.subject):
                if (fate := _fate(held)) is not None:
                    self._tell_fate(shard, held.seq, fate)
                return
            tree, _ = self._topology.parse(held.subject)
            if tree in self._listeners and (entry := await self._read_whole(held, set())) is not None:
                self._tell(shard, Stored(held.seq, entry, len(held.data)))

        return handle

    def _tell(self, shard: int, stored: Stored | None) -> None:
        if stored is not None and self._is_news(shard, stored.seq):
            for listener in list(self._listeners.get(stored.entry.tree, ())):
                listener(stored)

    def _tell_fate(self, shard: int, seq: int, fate: Fate) -> None:
        if self._is_news(shard, seq) and isinstance(fate, Erased) and self.on_erased is not None:
            self.on_erased(fate.tree)

    def _is_news(self, shard: int, seq: int) -> bool:
        """Takes note that listeners hear of what lies there; false when they have."""
        if shard not in self._told:
            return True
        is_news = seq > self._told[shard]
        self._told[shard] = max(self._told[shard], seq)
        return is_news

    async def _read_whole(self, held: StoredMessage, refs: set[str]) -> Entry | None:
        """Reads an entry with what was spilled of it, and adds the blobs that it names to `refs`. Returns None for one
        that cannot be read: a bad entry must not hide all later ones."""
        noting = Noting(self._blobs)
        entry = await self._read_patiently(held, lambda: unpack_entry(held.data, noting))
        if entry is not None:
            refs |= noting.refs
        return entry

    async def _read_task(self, held: StoredMessage) -> Task | None:
        """Reads a task with what was spilled of it. Returns None for any other record, and for one that cannot be
        read."""
        if not _may_be_task(held):
            return None
        record = await self._read_patiently(held, lambda: unpack_record(held.data, self._blobs))
        return record if isinstance(record, Task) else None

    async def _read_patiently(self, held: StoredMessage, read: Callable[[], Awaitable[T]]) -> T | None:
        """What `read` makes of a message, as soon as the object store has what it needs of it; None where it cannot be
        read."""
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


def _may_be_task(held: StoredMessage) -> bool:
    try:
        return msgspec.json.decode(held.data, type=Head).type in ("task", "spilled")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True  # where it is decoded this is told


def _fate(held: StoredMessage) -> Fate | None:
    try:
        fate: Fate = decode(held.data, Fate)
    except UnreadableMessage as error:
        log.error("message %d on %s left out: %s", held.seq, held.subject, error)
        return None
    return fate


class StreamState(NamedTuple):
    """The stream of a shard."""

    created: str
    """When it was created: another time means another stream."""
    end: int
    """The sequence of its last message."""


async def stream_states(nc: Client, topology: Topology) -> list[StreamState]:
    """The streams of all shards. Raises BusUnavailable."""
    found = []
    for shard in range(topology.shards):
        answer = await jetstream.ask(nc, "asking for the streams", f"STREAM.INFO.{topology.stream(shard)}")
        found.append(StreamState(answer["created"], answer["state"]["last_seq"]))
    return found
