"""What is known of all runs, in a database: it follows from the journals, and can be made anew from them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from cadre.api.runs import RunOrder, RunSummary
from cadre.errors import RunIndexUnavailable
from cadre_gateway.index.completeness import Completeness, IndexProgress
from cadre_gateway.index.database.port import Database, Row, SqlQuery, Statement
from cadre_gateway.index.removals import Removals
from cadre_gateway.index.run_filter import Cursor, RunFilter, count_query, page_mark, page_place, page_query
from cadre_gateway.index.saved_place import SAVE_META, SavedPlace, are_of_one, load_place, reaches, rows_of
from cadre_gateway.index.tree_rows import IndexedTree, queries_of, statements_for, tree_of_rows
from cadre_gateway.requests.problems import awaiting

log = logging.getLogger("cadre.gateway")

_FLUSH_SECONDS = 0.25
"""What changes is saved so soon, in one transaction with what else has changed."""

_FLUSH_CHANGES = 5_000
"""After so many entries it is saved at once."""

_RETRY_SECONDS = 5.0

_ANSWER_SECONDS = 4.0
"""Seconds that a question waits: fewer than the request that asks it has, so that what did not answer is named."""

_WARN_SECONDS = 60.0
"""Seconds between two warnings that it cannot be saved."""

_LOOK_SECONDS = 0.5
"""So often a gateway that does not write looks how far the one has come that does, and whether it is there."""

_STALLED_SECONDS = 20.0
"""A gateway that writes nothing for so long, though there is something, is taken for dead."""

_REFRESH_SECONDS = 3600.0
"""An index in which nothing changes is said to be current so often."""

_CACHED_TREES, _CACHED_RUNS = 500, 2_000
"""Held in memory beside those with changes that are not saved."""

T = TypeVar("T")


class RunIndex:
    """Trees of runs, by id in memory as long as they change, and all of them in the database."""

    def __init__(self, database: Database, place: SavedPlace) -> None:
        self._database = database
        self._place = place
        self.positions_read: Callable[[], Sequence[int]] = lambda: self._place.positions
        """Up to where the journals were read; what was read is in here."""
        self.removals = Removals()
        self._completeness = Completeness()
        self._trees: OrderedDict[str, IndexedTree] = OrderedDict()
        self._changed: dict[str, IndexedTree] = {}
        self._awaited: dict[str, IndexedTree] = {}
        """Trees that had changed when the journals were read up to `_awaited_places`: another gateway saves them."""
        self._awaited_places: list[int] = []
        self._stalled_at: float | None = None
        self.writes = not database.is_shared
        """Whether what changes is saved by this process, not by another one that has the same database."""
        self._changes = 0
        self._saved_removals = msgspec.json.encode(self.removals)
        self._lock = asyncio.Lock()
        self._due = asyncio.Event()
        self.failure: RunIndexUnavailable | None = None
        """Why what has changed could not be saved."""
        self._is_another = False
        """Whether the database is not what it was: what it tells is not to be relied on."""
        self.is_closed = False

    @property
    def positions(self) -> list[int]:
        """Up to which sequences the saved index has the journals: see `Tail.positions`."""
        return list(self._place.positions)

    def go_on(self, place: SavedPlace, removals: Removals, writes: bool) -> None:
        """Goes on from what was saved, as the one that `writes` or not."""
        self._place, self.writes, self.failure = place, writes, None
        for name in Removals.__struct_fields__:  # others hold on to this one
            mine = getattr(self.removals, name)
            mine.clear()
            mine.update(getattr(removals, name))
        self._saved_removals = msgspec.json.encode(self.removals)

    # --- whether it is whole

    @property
    def whole(self) -> asyncio.Event:
        """Set once it has all that the journals held when this process began to read them."""
        return self._completeness.whole

    @property
    def progress(self) -> IndexProgress | None:
        """How far the journals are in it; None once it is whole."""
        return self._completeness.progress(self._read_by_now())

    def begin_reading(self, positions: Callable[[], Sequence[int]], ends: Sequence[int]) -> None:
        """Takes note that the journals are being read, up to `positions`, of streams with these last sequences. Until
        `note_caught_up` what is asked of it raises RunIndexBuilding."""
        self.positions_read = positions
        self._completeness.begin(ends)

    def grow(self, streams: Sequence[str]) -> None:
        """Takes note that these are the streams now: those that were added have nothing in it."""
        self._place = self._place.grown_to(streams)

    def note_caught_up(self) -> None:
        """Takes note that the journals were read to their end."""
        self._completeness.note_end(self.positions_read())
        self._completeness.update(self._read_by_now())

    def check_whole(self) -> None:
        """Raises RunIndexUnavailable as long as it lacks trees or is not to be relied on: where nothing fails,
        RunIndexBuilding."""
        if self.failure is not None and (self._is_another or not self.whole.is_set()):
            raise RunIndexUnavailable(str(self.failure))
        self._completeness.check(self._read_by_now())

    def _read_by_now(self) -> Sequence[int]:
        """Up to where the journals are in what is asked."""
        return self.positions_read() if self.writes else self._place.positions

    # --- what changes it

    @asynccontextmanager
    async def changing(self, tree: str) -> AsyncIterator[IndexedTree]:
        """Opens a tree to be changed, by one at a time. Raises RunIndexUnavailable."""
        async with self._lock:
            if self._changes >= _FLUSH_CHANGES:
                await self._keep_up()
            found = self._trees.get(tree) or await self._load(tree)
            self._trees[tree] = found
            self._trees.move_to_end(tree)
            self._changed[tree] = found
            self._changes += 1
            self._due.set()
            yield found

    async def drop_tombstones(self, before: float) -> None:
        """Forgets what was erased before that time (Unix seconds): the records have left the streams."""
        async with self._lock:
            if self.writes:
                await self._flush()
                await self._database.write(
                    [Statement("DELETE FROM trees WHERE erased_at < ? AND newest = 0", [(before,)])]
                )
            for tree in self._trees.values():
                if tree.record.erased is not None and tree.record.erased.at < before:
                    tree.record.erased = None

    async def flush(self) -> None:
        """Saves what has changed, unless another process does. Raises RunIndexUnavailable."""
        async with self._lock:
            if self.writes:
                await self._flush()

    async def flush_now_and_then(self) -> None:
        """Saves what changes, soon after it has; takes the place of another process that does so no more."""
        is_shared, warned_at = self._database.is_shared, -_WARN_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS if is_shared else None):
                    await self._due.wait()
            await asyncio.sleep(_FLUSH_SECONDS)
            try:
                async with self._lock:
                    await self._keep_up()
            except RunIndexUnavailable as error:
                if time.monotonic() - warned_at > _WARN_SECONDS:
                    warned_at = time.monotonic()
                    log.warning("the list of runs is not saved: %s", error)
                await asyncio.sleep(_LOOK_SECONDS if is_shared else _RETRY_SECONDS)

    async def beside(self) -> RunIndex:
        """An empty one of the same streams, to be filled from the journals and adopted. Raises RunIndexUnavailable."""
        found = RunIndex(self._database.beside(), self._place.at_the_start())
        await found._keep_up()
        return found

    async def adopt(self, other: RunIndex, caught_up: Callable[[Sequence[int]], Awaitable[None]]) -> None:
        """Takes the place of what it knows with what the other knows, once that has what this one has:
        `caught_up` returns when the other has everything up to the given positions. Raises RunIndexUnavailable."""
        async with self._lock:  # nothing is taken in meanwhile
            await caught_up(self.positions_read())
            await other._keep_up()
            await self._database.adopt(other._database)
            other.is_closed = True
            for known in (self._trees, self._changed, self._awaited):
                known.clear()
            self._changes = 0
            self.go_on(other._place.grown_to(self._place.streams), other.removals, self.writes)

    async def writer(self) -> str:
        """Names the other process that writes; "" when there is none. Raises RunIndexUnavailable."""
        return "" if self.writes else await self._answered(self._database.writer())

    async def bytes(self) -> int:
        """How much room the database takes."""
        return await self._answered(self._database.bytes())

    async def close(self) -> None:
        """Saves what has changed and lets go of the database. Raises RunIndexUnavailable."""
        async with self._lock:
            self.is_closed = True
            try:
                if self.writes:
                    await self._flush()
            finally:
                await self._database.close()

    # --- what is asked of it; every one of these raises RunIndexUnavailable

    async def read(self, query: SqlQuery) -> Sequence[Row]:
        """The rows of everything that was read by now."""
        self.check_whole()
        return await self._answered(self._read_saved(query))

    async def get(self, tree: str, run: str) -> RunSummary | None:
        """None when no run of this id is known."""
        if (known := self._trees.get(tree)) is not None:
            return known.runs.runs.get(run)
        rows = await self.read(SqlQuery("SELECT summary FROM runs WHERE id = ?", (run,)))
        return _summary(rows[0][0]) if rows else None

    async def last_of(self, tree: str) -> int:
        """Sequence of the newest entry or file of the tree; 0 for one that is not there."""
        self.check_whole()
        if (known := self._trees.get(tree)) is not None:
            return known.record.last
        rows = await self.read(SqlQuery("SELECT newest FROM trees WHERE tree = ?", (tree,)))
        return int(rows[0][0]) if rows else 0

    async def is_referenced(self, blob: str) -> bool:
        """Whether any tree that is there references the blob."""
        unsaved = (*self._changed.values(), *self._awaited.values())
        return any(blob in tree.record.blobs for tree in unsaved) or bool(
            await self.read(SqlQuery("SELECT 1 FROM blobs WHERE blob = ? LIMIT 1", (blob,)))
        )

    async def list(
        self, wanted: RunFilter, *, order: RunOrder = "started", limit: int = 50, before: str | None = None
    ) -> tuple[list[RunSummary], str | None]:
        """A page of runs, and the `before` of the next page (None: this is the last one). Raises KeyError when
        `before` is none of a list in this order."""
        place = page_place(order, before) if before is not None else None
        rows = await self.read(page_query(self._database.dialect, wanted, order, limit + 1, place))
        found = [(_summary(body), value) for body, value in rows[:limit]]
        more = Cursor(found[-1][1], found[-1][0].id) if len(rows) > limit else None
        return [summary for summary, _ in found], page_mark(order, more) if more is not None else None

    async def count(self, wanted: RunFilter) -> int:
        """How many runs there are."""
        return int((await self.read(count_query(self._database.dialect, wanted)))[0][0])

    async def size(self) -> int:
        """How many root runs are in it by now."""
        query = count_query(self._database.dialect, RunFilter())
        # Before it is whole there is no hurry, and saving may take a while.
        ask = self._read_saved if self.whole.is_set() else self._database.read
        return int((await self._answered(ask(query)))[0][0])

    async def _read_saved(self, query: SqlQuery) -> Sequence[Row]:
        await self.flush()
        return await self._database.read(query)

    async def _answered(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns. Raise RunIndexUnavailable when that takes longer than a request waits, also
        when the database does not let go of a question that is cancelled."""
        task = asyncio.create_task(work)
        task.add_done_callback(_retrieved)
        silence = RunIndexUnavailable(
            f"the database of the index does not answer within {_ANSWER_SECONDS:g} s; runs go on, lists come back with"
            " it (CADRE_INDEX_URL)"
        )
        try:
            with awaiting(silence):
                await asyncio.wait({task}, timeout=_ANSWER_SECONDS)
            if not task.done():
                raise silence
            return task.result()
        finally:
            task.cancel()

    # --- saving, with the lock held

    async def _load(self, tree: str) -> IndexedTree:
        queries = queries_of(tree)
        if not await self._database.read(queries[0]):
            return IndexedTree(tree)
        return tree_of_rows(tree, await self._database.read_all(queries))

    async def _keep_up(self) -> None:
        """Saves what has changed, or lets go of what another process has saved."""
        try:
            leads = await self._database.lead()
            if not (leads and self.writes):
                await self._look(leads)
        except RunIndexUnavailable as error:
            self.failure, self.writes = error, False
            raise
        if self.writes:
            await self._flush()
        self.failure = None  # also where there was nothing to save

    async def _look(self, leads: bool) -> None:
        """Sees what other processes have saved, and goes on from there if this one `leads` and has read as far."""
        place, removals = await load_place(self._database)
        before, self._place = self._place, place or self._place.at_the_start()
        same = are_of_one(self._place.streams, before.streams)
        if not same or not reaches(self._place.positions, before.positions):
            self._place, self.writes, self._is_another = before, False, True
            raise RunIndexUnavailable(
                "the index is not what it was: another deployment has the same one (give each its CADRE_INDEX_SCHEMA),"
                " or the database was set back (start the gateways again)"
            )
        self._is_another, self._place = False, self._place.grown_to(before.streams)
        read = list(self.positions_read())
        self.writes = leads and reaches(read, place.positions if place is not None else [])
        if self.writes:
            for name in Removals.__struct_fields__:
                mine, theirs = getattr(self.removals, name), getattr(removals, name)
                mine.update({key: value for key, value in theirs.items() if key not in mine})
            self._changed = self._awaited | self._changed
            self._awaited = {}
        elif not self._awaited:
            self._awaited, self._changed, self._awaited_places = self._changed, {}, read
            self._changes = 0
        elif reaches(self._place.positions, self._awaited_places):
            for name, tree in self._awaited.items():
                if name not in self._changed:
                    tree.saved()
            self._awaited = {}
            self._make_room()
        self._due.clear()
        self._completeness.update(self._read_by_now())
        if leads or self._place.positions != before.positions or reaches(self._place.positions, read):
            self._stalled_at = None
        elif self._stalled_at is None:
            self._stalled_at = time.monotonic()
        elif time.monotonic() - self._stalled_at > _STALLED_SECONDS:
            self._stalled_at = None
            await self._database.depose()

    async def _flush(self) -> None:
        removals, positions = msgspec.json.encode(self.removals), list(self.positions_read())
        is_recent = time.time() - self._place.saved_at < _REFRESH_SECONDS
        saved = self._saved_removals, self._place.positions
        if is_recent and not self._changed and (removals, positions) == saved:
            return
        place = msgspec.structs.replace(self._place, positions=positions, saved_at=time.time())
        changed = list(self._changed.values())
        of_trees, of_place = statements_for(self._database.dialect, changed), rows_of(place, removals)
        try:
            await self._database.write([*of_trees, Statement(SAVE_META, of_place)])
        except RunIndexUnavailable as error:
            self.failure, self.writes = error, not self._database.is_shared
            raise
        self.failure = None
        for tree in changed:
            tree.saved()
        self._changed.clear()
        self._changes = 0
        self._place, self._saved_removals = place, removals
        self._due.clear()
        self._make_room()

    def _make_room(self) -> None:
        runs = sum(len(tree.runs.runs) for tree in self._trees.values())
        unsaved = self._changed.keys() | self._awaited.keys()
        for name in [one for one in self._trees if one not in unsaved]:
            if len(self._trees) <= _CACHED_TREES and runs <= _CACHED_RUNS:
                break
            runs -= len(self._trees.pop(name).runs.runs)


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Read the error of work that was given up: it is not a defect."""
    if not task.cancelled():
        task.exception()


def _summary(body: bytes) -> RunSummary:
    return msgspec.json.decode(body, type=RunSummary)
