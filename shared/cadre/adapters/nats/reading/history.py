"""Read the journals of a tree page by page with batched direct gets, without a consumer per reader; or as bytes, and
write them to another place."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import ReplicaTries, StoredMessage, TooManySubjects
from cadre.delivery.codec import HEADERS, SPILL_BYTES, decode, encode, unpack_entry, unpack_record
from cadre.errors import BlobMissing, BusUnavailable, NewerSchema, TooLarge, UnreadableMessage
from cadre.journal.entry import Entry, positions
from cadre.journal.events import RunAccepted
from cadre.ports import Blobs, Stored
from cadre.protocol.deltas import Delta
from cadre.protocol.messages import Head, Spilled, Task
from cadre.protocol.topology import Subject, Topology, is_within

log = logging.getLogger("cadre.history")

_PAGE = 128
_LEAN_BYTES_PER_ENTRY = 32 * 1024
"""A lean page ends with the entry that brings it above so much for each entry that it may have."""

_FIRST_RECORDS = 8
"""Among so many of a run's records its task is looked for."""

_ending: set[asyncio.Task[None]] = set()

_REPLICA_SECONDS = 1.0

MERGED_RUNS = 16
"""The journals of more runs than that are looked for by the wildcard, which finds something everywhere then."""


class History:
    """Reads stored entries and tasks. Every method raises BusUnavailable."""

    def __init__(self, nc: Client, topology: Topology, blobs: Blobs) -> None:
        self._nc = nc
        self._topology = topology
        self._blobs = blobs

    async def pages(self, tree: str, after: int = 0, *, at_least: int = 0) -> AsyncIterator[list[Stored]]:
        """Yield the entries of all runs of the tree behind sequence `after`, in stream order.

        Any replica of the stream answers, so the newest entries may be missing, but none up to `at_least`, which is the
        sequence of an entry of the tree: raises BusUnavailable where no replica has that within a second.
        """
        async for held in self.raw_pages(tree, after, at_least=at_least):
            yield [stored for one in held if (stored := await self._read(one)) is not None]

    async def lean_pages(  # noqa: PLR0913 - which entries, and in what pages
        self,
        tree: str,
        after: int = 0,
        *,
        at_least: int = 0,
        entries: int = _PAGE,
        whole_up_to: int | None = None,
        run: str | None = None,
        all_of: str | None = None,
    ) -> AsyncIterator[list[Stored]]:
        """Yield what `pages` does, decoded outside the event loop, in pages of few bytes and of so many entries at
        most, for readers of a long tree; with `run` of that run only.

        With `whole_up_to` raises TooLarge when the entries have more bytes than that. With `all_of` raises NewerSchema
        at an entry of that run, or of one below it, that only a newer version can read, once those before it were
        yielded.
        """

        def is_needed(subject: str) -> bool:
            return all_of is not None and is_within(self._topology.parse(subject)[1], all_of)

        page: list[tuple[StoredMessage, bytes]] = []
        size = total = 0
        async for held_page in self.raw_pages(tree, after, run, at_least=at_least, entries=entries):
            for held in held_page:
                try:
                    data = await self.whole(held)
                except NewerSchema:
                    data = held.data  # decoding reports it
                except (UnreadableMessage, BlobMissing) as error:
                    _leave_out(held, error)
                    continue
                page.append((held, data))
                size += len(data)
                total += len(data)
                if whole_up_to is not None and total > whole_up_to:
                    raise TooLarge(f"run {tree} with all below it", total, whole_up_to)
                if size >= entries * _LEAN_BYTES_PER_ENTRY:
                    while page:
                        yield await asyncio.to_thread(_lean, page, is_needed)
                    size = 0
            # Nothing but the entries is held while their reader takes its time.
            held_page.clear()
            while page:
                yield await asyncio.to_thread(_lean, page, is_needed)
            size = 0

    async def whole(self, held: StoredMessage) -> bytes:
        """Return the bytes of an entry, from the object store when they went there. Raises BlobMissing,
        UnreadableMessage."""
        try:
            head = msgspec.json.decode(held.data, type=Head)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableMessage(f"not a message: {error}") from error
        if head.type != "spilled":
            return held.data
        spilled: Spilled = decode(held.data, Spilled)
        return await self._blobs.get(spilled.ref)

    async def raw_pages(
        self, tree: str, after: int = 0, run: str | None = None, *, at_least: int = 0, entries: int = _PAGE
    ) -> AsyncIterator[list[StoredMessage]]:
        """Yield the entries as they lie in the stream, those too large for it as references; with `run` of that run
        only. See `pages`."""
        topology = self._topology
        subject = topology.journals_of_tree(tree) if run is None else topology.journal(tree, run)
        async for page in journal_pages(self._nc, topology.stream_of(tree), subject, after, at_least, entries):
            yield page

    async def newest(self, tree: str) -> int:
        """Return the sequence of the tree's last entry as the stream's leader has it; 0 when there is no entry."""
        held = await jetstream.last(self._nc, self._topology.stream_of(tree), self._topology.journals_of_tree(tree))
        return held.seq if held is not None else 0

    async def first(self, tree: str, run: str, after: int = 0) -> Stored | None:
        """Return the first entry of a run after sequence `after` as the stream's leader has it; None when there is no
        entry that this version reads."""
        topology = self._topology
        held = await jetstream.following(self._nc, topology.stream_of(tree), topology.journal(tree, run), after)
        return await self._read(held) if held is not None else None

    async def extent(self, tree: str) -> tuple[int, int]:
        """Return the sequences of the first entry of the tree's root and of the last one of the tree, as the stream's
        leader has them; 0 for an entry that does not exist."""
        topology = self._topology
        stream, root = topology.stream_of(tree), topology.journal(tree, tree)
        first, newest = await asyncio.gather(jetstream.following(self._nc, stream, root), self.newest(tree))
        return first.seq if first is not None else 0, newest

    async def read_tree(self, tree: str) -> list[Stored]:
        """Return all `pages` at once."""
        return [stored async for page in self.pages(tree) for stored in page]

    async def read_run(self, tree: str, run: str, after: int = 0) -> list[Stored]:
        """Return all entries of one run behind sequence `after`."""
        pages = self.raw_pages(tree, after, run)
        return [one async for page in pages for held in page if (one := await self._read(held)) is not None]

    async def entry(self, tree: str, run: str, n: int) -> Stored | None:
        """Return the entry at position `n` of a run, along the back-pointers from its last one, which the stream's
        leader has. None when it is missing or cannot be read. Raises NewerSchema too."""
        stream = self._topology.stream_of(tree)
        held = await jetstream.last(self._nc, stream, self._topology.journal(tree, run))
        while held is not None:
            try:
                entry = await unpack_entry(held.data, self._blobs)
            except NewerSchema:
                raise
            except (UnreadableMessage, BlobMissing) as error:
                _leave_out(held, error)
                return None
            if entry.n <= n:
                return Stored(held.seq, entry) if entry.n == n else None
            named = zip(positions(entry.n), entry.earlier, strict=True)
            held = await self._at(stream, next(seq for position, seq in named if position >= n))
        return None

    async def _at(self, stream: str, seq: int) -> StoredMessage | None:
        async for _ in ReplicaTries(_REPLICA_SECONDS):
            if (held := await jetstream.get(self._nc, stream, seq)) is not None:
                return held
        return None  # it was removed

    async def has_entries(self, tree: str, run: str) -> bool:
        """Return whether a run has a journal."""
        async for _ in self.raw_pages(tree, run=run):
            return True
        return False

    async def task(self, tree: str, run: str) -> Task | None:
        """Return the Task that was published for a run, whether or not an agent has taken it up; None when it does not
        exist. Raises NewerSchema too.

        The stream's leader is asked: a task that was just published must be found.
        """
        stream, subject = self._topology.stream_of(tree), self._topology.inbox_of_run(tree, run)
        after = 0
        for _ in range(_FIRST_RECORDS):
            held = await jetstream.following(self._nc, stream, subject, after)
            if held is None:
                return None
            after = held.seq
            try:
                record = await unpack_record(held.data, self._blobs)
            except NewerSchema:
                raise  # it may be the task
            except (UnreadableMessage, BlobMissing) as error:
                log.warning("record %d on %s left out: %s", held.seq, held.subject, error)
                continue
            if isinstance(record, Task):
                return record
        return None

    async def root_task(self, tree: str) -> Task | None:
        """Return the task that the tree began with: as it was published, else as its root's journal has it, which is
        all that there is of an imported run. None when there is neither, or none that this version reads."""
        try:
            task = await self.task(tree, tree)
        except NewerSchema:
            return None
        if task is None and (first := await self.first(tree, tree)) is not None:
            task = next((event.task for event in first.entry.events if isinstance(event, RunAccepted)), None)
        return task

    async def _read(self, held: StoredMessage) -> Stored | None:
        try:
            return Stored(held.seq, await unpack_entry(held.data, self._blobs))
        except (UnreadableMessage, BlobMissing) as error:
            _leave_out(held, error)
            return None


def _leave_out(held: StoredMessage, error: Exception) -> None:
    log.error("entry %d on %s left out: %s", held.seq, held.subject, error)


def _lean(page: list[tuple[StoredMessage, bytes]], is_needed: Callable[[str], bool]) -> list[Stored]:
    """Decode a page, which is empty then. Stop before a newer entry on a subject that is needed; with nothing before
    that in the page, raise NewerSchema."""
    found: list[Stored] = []
    page.reverse()
    while page:
        held, data = page.pop()
        try:
            entry: Entry = decode(data, Entry)
        except UnreadableMessage as error:
            if isinstance(error, NewerSchema) and is_needed(held.subject):
                if not found:
                    raise
                page.append((held, data))
                page.reverse()
                return found
            _leave_out(held, error)
            continue
        found.append(Stored(held.seq, entry))
    return found


async def watch_deltas(
    nc: Client, topology: Topology, tree: str, on_delta: Callable[[Delta], None]
) -> Callable[[], None]:
    """Call `on_delta` with each piece of an answer written in the tree; return the function that ends that."""

    async def note(message: Msg) -> None:
        try:
            on_delta(decode(message.data, Delta))
        except UnreadableMessage as error:
            log.debug("delta on %s left out: %s", message.subject, error)

    subscription = await nc.subscribe(topology.subject(Subject.DELTA, tree=tree), cb=note)

    async def unsubscribe() -> None:
        if not nc.is_closed:
            await subscription.unsubscribe()

    def end() -> None:
        # Its own task: the caller may be about to be cancelled.
        task = asyncio.create_task(unsubscribe())
        _ending.add(task)
        task.add_done_callback(_ending.discard)

    return end


class _Journal:
    """The entries of one run, up to its head."""

    def __init__(self, subject: str, after: int, head: int) -> None:
        self.subject, self.after, self.head = subject, after, head
        self.held: deque[StoredMessage] = deque()

    @property
    def is_read(self) -> bool:
        return self.after >= self.head

    async def read_on(self, nc: Client, stream: str, entries: int) -> None:
        page = await _page(nc, stream, self.subject, self.after, self.head, entries)
        self.held.extend(page)
        # What is not there any more was removed.
        self.after = page[-1].seq if page else self.head


async def journal_pages(
    nc: Client, stream: str, subject: str, after: int, at_least: int, entries: int
) -> AsyncIterator[list[StoredMessage]]:
    """Yield the entries of all journals on `subject` after sequence `after`, in pages of `entries` at most, until none
    is left. Any replica answers, and one that lags hides nothing up to `at_least`, the sequence of an entry that is
    there. Raise BusUnavailable where no replica has that entry within a second."""
    try:
        while heads := await _heads(nc, stream, subject, after, at_least):
            end = max(heads.values())
            if len(heads) > MERGED_RUNS:
                pages = _scanned(nc, stream, subject, after, end, entries)
            else:
                journals = [_Journal(one, after, head) for one, head in heads.items()]
                pages = _merged(nc, stream, journals, max(1, entries // len(journals)))
            async for page in pages:
                yield page
            after = end
    except TooManySubjects:
        for sure in (at_least, None):
            async for page in _scanned(nc, stream, subject, after, sure, entries):
                after = page[-1].seq
                yield page


async def _heads(nc: Client, stream: str, subject: str, after: int, at_least: int) -> dict[str, int]:
    """Return the last sequence of each journal that has one behind `after`. Raises TooManySubjects, BusUnavailable."""
    found: dict[str, int] = {}
    async for _ in ReplicaTries(_REPLICA_SECONDS):
        last = await jetstream.batch(nc, stream, {"multi_last": [subject]})
        found = {held.subject: held.seq for held in last if held.seq > after}
        if max([after, *found.values()]) >= at_least:
            return found
    if not await jetstream.following(nc, stream, subject, max([after, *found.values()])):
        return found  # it was removed
    raise BusUnavailable(f"reading from {stream}", f"no replica has message {at_least} yet")


async def _merged(
    nc: Client, stream: str, journals: list[_Journal], entries: int
) -> AsyncIterator[list[StoredMessage]]:
    while journals:
        for one in journals:
            while not one.held and not one.is_read:
                await one.read_on(nc, stream, entries)
        # Up to here nothing can be missing in between.
        sure = min((one.after for one in journals if not one.is_read), default=None)
        page: list[StoredMessage] = []
        for one in journals:
            while one.held and (sure is None or one.held[0].seq <= sure):
                page.append(one.held.popleft())
        journals = [one for one in journals if one.held or not one.is_read]
        if page:
            page.sort()
            yield page


async def _scanned(
    nc: Client, stream: str, subject: str, after: int, end: int | None, entries: int
) -> AsyncIterator[list[StoredMessage]]:
    while end is None or after < end:
        page = await _page(nc, stream, subject, after, end, entries)
        if not page:
            return
        after = page[-1].seq
        yield page


async def _page(
    nc: Client, stream: str, subject: str, after: int, end: int | None, entries: int
) -> list[StoredMessage]:
    """Return the next entries up to `end`; a replica that has none of them may lag behind the one that knew the end."""
    query = {"seq": after + 1, "batch": entries, "next_by_subj": subject}
    async for _ in ReplicaTries(_REPLICA_SECONDS):
        page = await jetstream.batch(nc, stream, query)
        if page or end is None:
            return [held for held in page if end is None or held.seq <= end]
    missed = await jetstream.following(nc, stream, subject, after)
    if missed is not None and end is not None and missed.seq <= end:
        raise BusUnavailable(f"reading from {stream}", f"no replica has message {missed.seq} yet")
    return []  # it was removed


class RawEntry(NamedTuple):
    """A journal entry as it was written, of any size."""

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
        """Yield all entries of the tree's journals in stream order; see History.pages for `at_least`."""
        async for page in self._history.raw_pages(tree, at_least=at_least):
            for held in page:
                yield RawEntry(held.seq, await self._history.whole(held))

    async def append(self, tree: str, run: str, data: bytes, fence: int) -> int:
        """Append an entry behind the one at `fence`; returns its sequence. Raises Fenced, RetryableError."""
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
