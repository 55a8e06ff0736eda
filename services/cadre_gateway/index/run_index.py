"""Index all runs in a database, apply what is read from the streams to it, and report how complete it is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from math import inf
from typing import NamedTuple

import msgspec

from cadre.adapters.nats.erasure import LIFECYCLE_SECONDS
from cadre.adapters.nats.reading.tail import Read, reader_names
from cadre.api.runs import RunOrder, RunSummary
from cadre.errors import RunIndexBuilding, RunIndexUnavailable
from cadre.protocol.messages import Erased
from cadre_gateway.index.database.port import Database, IndexReplaced, Row, SqlQuery, Statement, answered
from cadre_gateway.index.run_filter import Cursor, RunFilter, count_query, page_mark, page_place, page_query
from cadre_gateway.index.tree_record import EntryStatus
from cadre_gateway.index.tree_rows import BY_THIS_ALONE, IndexedTree, queries_of, statements_for

log = logging.getLogger("cadre.gateway")

_SAVE_SECONDS = (0.25, 0.75)
"""Range of the delay before changes are saved, all in one transaction. The delay is random, so that one of several
gateways saves first and the others find its work done."""

_FLUSH_CHANGES = 5_000
"""Number of entries after which it is saved at once."""

_WARN_SECONDS = 60.0
"""Seconds between two warnings that it cannot be saved."""

_LOOK_SECONDS = 1.0
"""Seconds without a change after which a gateway checks that the database is there and the same; also after a
failure."""

_CACHED_TREES, _CACHED_RUNS = 500, 2_000
"""Limits of what is held in memory, in addition to trees and runs with unsaved changes."""

_ANOTHERS = "the index is another deployment's now: give each its own CADRE_INDEX_SCHEMA"


class RunIndex:
    """Trees of runs, by id in memory as long as they change, and all of them in the database."""

    def __init__(self, database: Database, streams: Sequence[str]) -> None:
        """`streams` says when each shard's stream was created. Nothing is known before `open`."""
        self._database = database
        self._streams = streams
        self._saved = Saved()
        self.positions_read: Callable[[], Sequence[int]] = lambda: self.positions
        """Up to where the journals were read; what was read is in here."""
        self._read_behind: Callable[[Sequence[int]], None] = lambda _: None
        self.removals = Removals()
        self._completeness = Completeness()
        self._trees: OrderedDict[str, IndexedTree] = OrderedDict()
        self._changed: dict[str, IndexedTree] = {}
        self._changes = 0
        self._lock = asyncio.Lock()
        self._due = asyncio.Event()
        self.is_open = False
        """True while reading continues from the position that the database has."""
        self._was_open = False
        self.failure: RunIndexUnavailable | None = None
        """The reason why changes could not be saved."""
        self.is_closed = False

    @property
    def positions(self) -> list[int]:
        """Up to which sequences the saved index has the journals: see `Tail.positions`."""
        return [self._saved.place.get(name, 0) for _, name in reader_names(len(self._streams))]

    async def open(self) -> None:
        """Go on from what the database has, or from nothing where that is of other streams or too old. Raise
        RunIndexUnavailable, which is its `failure` then."""
        async with self._lock:
            try:
                await self._database.open()
                saved = await load(self._database)
                if not saved.follows_from(self._streams):
                    if self._was_open:
                        raise RunIndexUnavailable(_ANOTHERS)
                    log.info("the index is of other streams, or too old: reading the journals from their start")
                    await self._database.empty()
                    saved = Saved()
            except RunIndexUnavailable as error:
                self.failure = error
                raise
            if self._was_open:
                self._completeness.begin(self.positions_read())
            log.info("the index has the journals up to %s", dict(saved.place))
            self._start_from(saved)
            # Before anything else is saved: a place behind which something was not read would be wrong for ever.
            self._read_behind(self.positions)

    def _start_from(self, saved: Saved) -> None:
        self._saved, self.failure = saved, None
        self.is_open = self._was_open = True
        self._trees.clear()
        self._changed.clear()
        self._changes = 0
        self.removals.clear()  # others hold on to it
        for row in sorted(saved.removals, key=lambda one: one.seq):
            self.removals.add(row)

    # --- whether it is whole

    @property
    def whole(self) -> asyncio.Event:
        """Set once it has all that the journals held when this process began to read them."""
        return self._completeness.whole

    @property
    def progress(self) -> IndexProgress | None:
        """Return how far the journals are in it; None once it is whole."""
        return self._completeness.progress(self.positions_read())

    def begin_reading(
        self,
        positions: Callable[[], Sequence[int]],
        ends: Sequence[int],
        go_on: Callable[[Sequence[int]], None],
    ) -> None:
        """Take note that the journals are being read, up to `positions`, of streams with these last sequences; `go_on`
        has them read behind other positions. Until `note_caught_up` what is asked of it raises RunIndexBuilding."""
        self.positions_read, self._read_behind = positions, go_on
        self._completeness.begin(ends)

    def grow(self, streams: Sequence[str]) -> None:
        """Take note that these are the streams now: those that were added have nothing in it."""
        self._streams = list(streams)

    def note_caught_up(self) -> None:
        """Take note that the journals were read to their end."""
        self.whole.set()

    def check_whole(self) -> None:
        """Raise RunIndexUnavailable as long as it lacks trees or is not to be relied on: where nothing fails,
        RunIndexBuilding."""
        if self.failure is not None and not (self.is_open and self.whole.is_set()):
            raise RunIndexUnavailable(str(self.failure))
        self._completeness.check(self.positions_read())

    # --- what changes it

    @asynccontextmanager
    async def changing(self, tree: str, reader: str = BY_THIS_ALONE, seq: float = inf) -> AsyncIterator[IndexedTree]:
        """Open a tree to be changed, by one at a time: by the message at `seq` that a reader came upon, which changes
        it in every gateway alike, or by something else. Raises RunIndexUnavailable."""
        async with self._lock:
            self._check_open()
            if self._changes >= _FLUSH_CHANGES:
                await self._save()
            found = self._trees.get(tree) or await self._load(tree)
            self._trees[tree] = found
            self._trees.move_to_end(tree)
            self._changes += 1
            self._due.set()
            try:
                yield found
            finally:
                found.note_message(reader, seq)
                if found.unsaved:
                    self._changed[tree] = found

    async def drop_tombstones(self, before: float) -> None:
        """Forget what was erased before that time (Unix seconds): the records have left the streams."""
        async with self._lock:
            await self._save()
            gone = "floor > 0 AND seq <= floor AND (erased_at IS NULL OR erased_at < ?)"
            with self._failing():
                await self._database.write([Statement(f"DELETE FROM trees WHERE {gone}", [(before,)])])
            for tree in self._trees.values():
                if tree.record.erased is not None and tree.record.erased.at < before:
                    tree.record.erased = None
            await self._database.tidy()

    async def flush(self) -> None:
        """Save what has changed. Raises RunIndexUnavailable."""
        async with self._lock:
            await self._save()

    async def save_now_and_then(self) -> None:
        """Save what changes, soon after it has. Return when the index is not open (any more): what was read after
        `positions` must be read again once `open` has returned."""
        warned_at = -_WARN_SECONDS
        while self.is_open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS if self._database.is_shared else None):
                    await self._due.wait()
            waited_for, before = self._read_by_now(), self._saved.place
            await asyncio.sleep(random.uniform(*_SAVE_SECONDS))
            try:
                async with self._lock:
                    await self._look()
                    # Others keep up with the journals as this gateway does: it lets them, and waits again.
                    is_kept_up = self._saved.place != before and self._saved.reaches(waited_for)
                    if not (is_kept_up and self._changed and self._may_wait()):
                        await self._write()
            except RunIndexUnavailable as error:
                if time.monotonic() - warned_at > _WARN_SECONDS:
                    warned_at = time.monotonic()
                    log.warning("the list of runs is not saved: %s", error)
                if self.is_open:
                    await asyncio.sleep(_LOOK_SECONDS)

    async def beside(self) -> RunIndex:
        """Return an empty index of the same streams, to be filled from the journals and adopted. Raises
        RunIndexUnavailable."""
        found = RunIndex(self._database.beside(), self._streams)
        await found.open()
        return found

    async def adopt(self, other: RunIndex, caught_up: Callable[[Sequence[int]], Awaitable[None]]) -> None:
        """Take the place of what it knows with what the other knows, once that has what this one has:
        `caught_up` returns when the other has everything up to the given positions. Raises RunIndexUnavailable."""
        async with self._lock:  # nothing is taken in meanwhile
            await caught_up(self.positions_read())
            await other.flush()
            await self._database.adopt(other._database)
            other.is_closed = True
            self._start_from(other._saved)

    async def bytes(self) -> int:
        """Return the size of the database."""
        return await answered(self._database.bytes())

    async def close(self) -> None:
        """Save what has changed and close the database. Raises RunIndexUnavailable."""
        async with self._lock:
            self.is_closed = True
            try:
                if self.is_open:
                    await self._save()
            finally:
                await self._database.close()

    # --- what is asked of it; every one of these raises RunIndexUnavailable

    async def read(self, query: SqlQuery) -> Sequence[Row]:
        """Return the rows of everything that was read by now."""
        self.check_whole()
        return await answered(self._read_saved(query))

    async def get(self, tree: str, run: str) -> RunSummary | None:
        """None when no run of this id is known."""
        if (known := self._trees.get(tree)) is not None:
            return known.runs.story.summaries.get(run)
        rows = await self.read(SqlQuery("SELECT summary FROM runs WHERE id = ?", (run,)))
        return _summary(rows[0][0]) if rows else None

    async def last_of(self, tree: str) -> int:
        """Sequence of the newest entry or file of the tree; 0 for one that is not there."""
        self.check_whole()
        if (known := self._trees.get(tree)) is not None:
            return known.record.last
        rows = await self.read(SqlQuery("SELECT seq FROM trees WHERE tree = ? AND seq > floor", (tree,)))
        return int(rows[0][0]) if rows else 0

    async def is_referenced(self, blob: str) -> bool:
        """Return whether any existing tree references the blob."""
        return any(blob in tree.record.blobs for tree in self._changed.values()) or bool(
            await self.read(SqlQuery("SELECT 1 FROM blobs WHERE blob = ? LIMIT 1", (blob,)))
        )

    async def list(
        self, wanted: RunFilter, *, order: RunOrder = "started", limit: int = 50, before: str | None = None
    ) -> tuple[list[RunSummary], str | None]:
        """Return a page of runs, and the `before` of the next page (None: this is the last one). Raises KeyError if
        `before` is not a place of a list in this order."""
        place = page_place(order, before) if before is not None else None
        rows = await self.read(page_query(self._database.dialect, wanted, order, limit + 1, place))
        found = [(_summary(body), value) for body, value in rows[:limit]]
        more = Cursor(found[-1][1], found[-1][0].id) if len(rows) > limit else None
        return [summary for summary, _ in found], page_mark(order, more) if more is not None else None

    async def count(self, wanted: RunFilter) -> int:
        """Return how many runs there are."""
        return int((await self.read(count_query(self._database.dialect, wanted)))[0][0])

    async def size(self) -> int:
        """Return how many root runs are in it by now."""
        query = count_query(self._database.dialect, RunFilter())
        # Before it is whole there is no hurry, and saving may take a while.
        ask = self._read_saved if self.whole.is_set() else self._database.read
        return int((await answered(ask(query)))[0][0])

    async def _read_saved(self, query: SqlQuery) -> Sequence[Row]:
        await self.flush()
        return await self._database.read(query)

    # --- saving, with the lock held

    async def _load(self, tree: str) -> IndexedTree:
        queries = queries_of(tree)
        if not await self._database.read(queries[0]):
            return IndexedTree(tree)
        places, *answers = await self._database.read_all([PLACES, *queries])
        # From here on a database that is set back behind this is not what it was.
        self._note(self._saved._replace(place={reader: position for reader, _, position, _ in places}))
        return IndexedTree.of_rows(tree, answers)

    def _check_open(self) -> None:
        if not self.is_open:
            raise RunIndexUnavailable(str(self.failure or "the index is not open yet"))

    def _read_by_now(self) -> Mapping[str, int]:
        names = [name for _, name in reader_names(len(self._streams))]
        return dict(zip(names, self.positions_read(), strict=False))

    async def _save(self) -> None:
        """Save everything that has changed."""
        self._check_open()
        if self._has_news():
            await self._look()
            await self._write()

    def _has_news(self) -> bool:
        behind = self._saved.behind(self._read_by_now(), time.time())
        return bool(self._changed or behind or self.failure or self.removals.rows() != self._saved.removals)

    def _may_wait(self) -> bool:
        """Return whether nothing has changed that only this gateway may know of."""
        return self.failure is None and not any(BY_THIS_ALONE in one.unsaved for one in self._changed.values())

    async def _look(self) -> None:
        """Drop what other gateways have saved, and take up what they have to remove."""
        if not self._database.is_shared:
            return
        with self._failing():
            found = await load(self._database)
        for row in found.removals - self._saved.removals:
            self.removals.add(row)
        self._note(found)
        for name in [name for name, tree in self._changed.items() if tree.is_saved(found.place)]:
            self._changed.pop(name).saved()

    def _note(self, found: Saved) -> None:
        with self._failing():
            if not found.reaches(self._saved.place):
                raise IndexReplaced("the index is not what it was: it was made again, or set back")
        self._saved = found

    async def _write(self) -> None:
        if self._has_news():
            known, removals, now = self._saved, frozenset(self.removals.rows()), time.time()
            place = known.behind(self._read_by_now(), now)
            statements = [
                *statements_for(self._database.dialect, self._changed.values()),
                *removal_statements(removals - known.removals, known.removals - removals),
                place_statement(self._streams, place, now),
            ]
            with self._failing():
                await self._database.write([one for one in statements if one.rows])
            for tree in self._changed.values():
                tree.saved()
            self._changed.clear()
            saved_at = now if place else known.saved_at
            self._saved = Saved({**known.place, **place}, saved_at, known.streams, removals)
        self.failure, self._changes = None, 0
        self._due.clear()
        self._make_room()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Take note of a failure, and of tables that must be opened again."""
        try:
            yield
        except RunIndexUnavailable as error:
            self.failure = error
            if isinstance(error, IndexReplaced):
                self.is_open = False
                self._due.set()
            raise

    def _make_room(self) -> None:
        runs = sum(len(tree.runs.story.summaries) for tree in self._trees.values())
        for name in [one for one in self._trees if one not in self._changed]:
            if len(self._trees) <= _CACHED_TREES and runs <= _CACHED_RUNS:
                break
            runs -= len(self._trees.pop(name).runs.story.summaries)


def _summary(body: bytes) -> RunSummary:
    return msgspec.json.decode(body, type=RunSummary)


class IndexProgress(NamedTuple):
    """The progress of an index that lacks some of the journals."""

    read: int
    of: int
    """Sequences of all shards, with those of what is no entry or is gone."""

    def __str__(self) -> str:
        return f"{self.read / self.of if self.of else 1.0:.0%} of {self.of:,} messages"


class Completeness:
    """A new index is whole: it lacks nothing before its reading begins."""

    def __init__(self) -> None:
        self.whole = asyncio.Event()
        """Until it is set, a question raises RunIndexBuilding."""
        self.whole.set()
        self._ends: Sequence[int] = ()

    def begin(self, ends: Sequence[int]) -> None:
        """Take note that streams with these last sequences are being read into it."""
        self._ends = ends
        self.whole.clear()

    def progress(self, positions: Sequence[int]) -> IndexProgress | None:
        """Return how far an index with the journals up to there is; None once it is whole."""
        if self.whole.is_set():
            return None
        return IndexProgress(sum(map(min, zip(positions, self._ends, strict=False))), sum(self._ends))

    def check(self, positions: Sequence[int]) -> None:
        """Raise RunIndexBuilding unless it is whole."""
        if (progress := self.progress(positions)) is not None:
            raise RunIndexBuilding(
                f"this gateway reads the journals still: its index has {progress}; runs begin, go on and are shown by"
                " their ids meanwhile; try again (GET /v1/index shows its progress)"
            )


GRACE_SECONDS = 10.0
"""Seconds that the gateway that erased a tree has to remove it before others do."""


class Applied(NamedTuple):
    """The effect of an entry or a file."""

    status: EntryStatus
    ended_at: float | None
    """The time when its tree ended, in Unix seconds, if that is news."""


async def apply_read(index: RunIndex, read: Read) -> Applied:
    """Take in an entry or a workspace file, also one that cannot be read, or a task. Raises RunIndexUnavailable."""
    status = EntryStatus.CURRENT
    # Files have their own reader: one that came between an erasure and the run's next beginning counts in a
    # gateway that knows of both, and is late in another.
    reader = BY_THIS_ALONE if read.is_file else f"{read.shard}/{'journals' if read.task is None else 'tasks'}"
    async with index.changing(read.tree, reader, read.seq) as tree:
        record, runs = tree.record, tree.runs
        before = record.ended_at
        if read.task is not None:
            if record.awaits(read.seq, read.task):
                runs.add_task(read.seq, read.task)
        elif read.is_file:
            status = record.add_file(read.seq, read.refs, read.at)
        elif read.stored is None:
            record.add_unreadable(read.seq, read.refs)
        else:
            status = record.add_entry(read.seq, read.stored.entry, read.refs, read.at)
            if status is EntryStatus.CURRENT:
                runs.apply(read.seq, read.stored.entry)
        if status is EntryStatus.LATE:
            index.removals.late_trees[read.tree] = read.seq
        ended_at = record.ended_at if before is None else None
        return Applied(status, ended_at)


async def apply_erasure(index: RunIndex, seq: int, lifecycle: Erased) -> bool:
    """Take in that a tree was erased by the record at `seq`; false when that was known. Raises RunIndexUnavailable."""
    async with index.changing(lifecycle.tree) as tree:
        if not tree.record.erase(seq, lifecycle):
            return False
        index.removals.pending_erasures[lifecycle.tree] = PendingErasure(
            lifecycle.tree, seq, lifecycle.at + GRACE_SECONDS, lifecycle.expired, tree.forget()
        )
        return True


async def apply_import(index: RunIndex, seq: int, tree: str) -> None:
    """Take in that a tree was imported by the record at `seq`: what follows belongs to it. Raises
    RunIndexUnavailable."""
    async with index.changing(tree) as found:
        found.record.restore(seq)


_MAX_AGE_SECONDS = LIFECYCLE_SECONDS - 24 * 3600
"""The record of an erasure expires, so an older index could show a tree that was erased since."""

_REFRESH_SECONDS = 3600.0
"""An index in which nothing changes is said to be current so often."""

PLACES = SqlQuery("SELECT reader, stream, position, saved_at FROM place")
_QUERIES = (
    PLACES,
    SqlQuery("SELECT kind, name, seq, due, body FROM removals"),
)
# Who writes a position has saved, or found saved, everything up to it: so the greatest is true.
_PLACE = (
    "INSERT INTO place (reader, stream, position, saved_at) VALUES (?, ?, ?, ?) ON CONFLICT (reader) DO UPDATE SET"
    " position = excluded.position, saved_at = excluded.saved_at WHERE place.position <= excluded.position"
)
_REMOVAL = (
    "INSERT INTO removals (kind, name, seq, due, body) VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, name) DO UPDATE SET"
    " seq = excluded.seq, due = excluded.due, body = excluded.body"
    " WHERE removals.seq < excluded.seq OR removals.due < excluded.due"
)
_REMOVED = "DELETE FROM removals WHERE kind = ? AND name = ? AND seq <= ?"


class PendingErasure(msgspec.Struct, array_like=True):
    """An erased tree of which something may be left in the streams."""

    tree: str
    before: int
    """Sequence of the record that it was erased: everything of the tree below it goes."""
    due: float
    """Unix seconds from which this gateway may do it: until then it is left to the gateway that erased the tree."""
    expired: bool
    blobs: list[str] = []
    """The blobs that were known to be the tree's."""


class RemovalRow(NamedTuple):
    """One removal in the table; its key is its kind and its name."""

    kind: str
    name: str
    seq: int
    due: float
    body: bytes


class Removals:
    """The removals in progress, which are few at any time. Each gateway does all of them: they are idempotent."""

    def __init__(self) -> None:
        self.pending_erasures: dict[str, PendingErasure] = {}
        """Erased trees whose remains are still to be removed, in the order in which they were erased."""
        self.late_trees: dict[str, int] = {}
        """Trees of which something came late, with the sequence of the last of it."""
        self.postponed_blobs: dict[str, float] = {}
        """Blobs of removed trees that were too young to go, by the time from which they may."""

    def rows(self) -> set[RemovalRow]:
        """Return all of them as rows of the table."""
        return {
            *(
                RemovalRow("erasure", tree, one.before, one.due, msgspec.json.encode(one))
                for tree, one in self.pending_erasures.items()
            ),
            *(RemovalRow("late", tree, seq, 0.0, b"") for tree, seq in self.late_trees.items()),
            *(RemovalRow("blob", blob, 0, due, b"") for blob, due in self.postponed_blobs.items()),
        }

    def add(self, row: RemovalRow) -> None:
        """Take up one that another gateway has saved."""
        if row.kind == "erasure":
            self.pending_erasures.setdefault(row.name, msgspec.json.decode(row.body, type=PendingErasure))
        elif row.kind == "late":
            self.late_trees.setdefault(row.name, row.seq)
        else:
            self.postponed_blobs.setdefault(row.name, row.due)

    def clear(self) -> None:
        """Forget all of them."""
        for known in (self.pending_erasures, self.late_trees, self.postponed_blobs):
            known.clear()


class Saved(NamedTuple):
    """The contents of a database apart from the rows of trees."""

    place: Mapping[str, int] = {}
    """Up to which sequence each reader's messages are in it; a reader that is missing has none."""
    saved_at: float = 0.0
    streams: Mapping[str, str] = {}
    """Creation time of each reader's stream: a position is valid in that stream only."""
    removals: frozenset[RemovalRow] = frozenset()

    def follows_from(self, streams: Sequence[str]) -> bool:
        """Return whether it can be gone on with: it is of these streams, and not too old."""
        known = streams_of(streams)
        same = all(known.get(reader, stream) == stream for reader, stream in self.streams.items())
        return not self.place or (same and time.time() - self.saved_at <= _MAX_AGE_SECONDS)

    def behind(self, read: Mapping[str, int], now: float) -> dict[str, int]:
        """Return the positions to be saved of those up to which was read: those that are news, or all of them where
        nothing was news for long."""
        is_recent = now - self.saved_at < _REFRESH_SECONDS
        return {
            reader: position
            for reader, position in read.items()
            if position > self.place.get(reader, 0) or not is_recent
        }

    def reaches(self, wanted: Mapping[str, int]) -> bool:
        """Return whether it has everything up to these positions."""
        return all(self.place.get(reader, 0) >= position for reader, position in wanted.items())


def streams_of(streams: Sequence[str]) -> dict[str, str]:
    """Return the stream of each reader, from those of all shards."""
    return {reader: streams[shard] for shard, reader in reader_names(len(streams))}


def ends_of_readers(ends: Sequence[int]) -> list[int]:
    """Return the positions of a `Tail` that has read the journals to these sequences, one for each shard."""
    return [ends[shard] if reader.endswith("/journals") else 0 for shard, reader in reader_names(len(ends))]


async def load(database: Database) -> Saved:
    """Return what a database has. Raise RunIndexUnavailable."""
    places, removals = await database.read_all(_QUERIES)
    return Saved(
        {reader: position for reader, _, position, _ in places},
        max((saved_at for *_, saved_at in places), default=0.0),
        {reader: stream for reader, stream, *_ in places},
        frozenset(RemovalRow(*row) for row in removals),
    )


def place_statement(streams: Sequence[str], place: Mapping[str, int], now: float) -> Statement:
    """Return what saves these readers' positions."""
    known = streams_of(streams)
    return Statement(_PLACE, [(reader, known[reader], place[reader], now) for reader in sorted(place)])


def removal_statements(added: AbstractSet[RemovalRow], done: AbstractSet[RemovalRow]) -> list[Statement]:
    """Return what saves removals, and forgets those that are done."""
    found = [
        Statement(_REMOVED, sorted(row[:3] for row in done)),
        Statement(_REMOVAL, sorted(added)),
    ]
    return [one for one in found if one.rows]
