"""What is known of all runs, in a database: it follows from the journals, and can be made anew from them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from cadre.adapters.nats.erasure import FATE_SECONDS
from cadre.api.runs import RunSummary
from cadre.errors import RunIndexUnavailable
from cadre_gateway.index.database import Database, Row, SqlQuery, Statement
from cadre_gateway.index.removals import Removals
from cadre_gateway.index.run_filter import Cursor, Order, RunFilter, count_query, cursor_of, page_query
from cadre_gateway.index.schema import DATA_TABLES
from cadre_gateway.index.tree_record import Tombstone
from cadre_gateway.index.tree_rows import IndexedTree, queries_of, statements_for, tree_of_rows

log = logging.getLogger("cadre.gateway")

_FLUSH_SECONDS = 0.25
"""What changes is saved so soon, in one transaction with what else has changed."""

_FLUSH_CHANGES = 5_000
"""After so many entries it is saved at once."""

_RETRY_SECONDS = 5.0

_CACHED_TREES, _CACHED_RUNS = 500, 2_000
"""Held in memory beside those with changes that are not saved."""

_MAX_AGE_SECONDS = FATE_SECONDS - 24 * 3600
"""What was erased since an older index was saved may not be on record any more."""

_PLACE, _REMOVALS = "place", "removals"
_META = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class SavedPlace(msgspec.Struct, kw_only=True):
    """Up to where the journals are in the index."""

    streams: list[str]
    """When each shard's stream was created: positions in another stream mean nothing."""
    positions: list[int]
    """Sequence of the last entry of each shard that is in it."""
    saved_at: float


class RunIndex:
    """Trees of runs, by id in memory as long as they change, and all of them in the database."""

    def __init__(self, database: Database, place: SavedPlace, removals: Removals) -> None:
        self._database = database
        self._place = place
        self.positions_read: Callable[[], Sequence[int]] = lambda: self._place.positions
        """Up to where the journals were read; what was read is in here."""
        self.removals = removals
        self._trees: OrderedDict[str, IndexedTree] = OrderedDict()
        self._changed: dict[str, IndexedTree] = {}
        self._changes = 0
        self._saved_removals = msgspec.json.encode(removals)
        self._lock = asyncio.Lock()
        self._due = asyncio.Event()
        self.failure: RunIndexUnavailable | None = None
        """Why what has changed could not be saved."""
        self.is_closed = False

    @property
    def positions(self) -> list[int]:
        """The sequence in each shard up to which the saved index has the journals."""
        return list(self._place.positions)

    # --- what changes it

    @asynccontextmanager
    async def changing(self, tree: str) -> AsyncIterator[IndexedTree]:
        """Opens a tree to be changed, by one at a time. Raises RunIndexUnavailable."""
        async with self._lock:
            if self._changes >= _FLUSH_CHANGES:
                await self._flush()
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
            await self._flush()
            await self._database.write(
                [Statement("DELETE FROM trees WHERE erased_at < ? AND newest = 0", [(before,)])]
            )
            for tree in self._trees.values():
                if tree.record.erased is not None and tree.record.erased.at < before:
                    tree.record.erased = None

    async def flush(self) -> None:
        """Saves what has changed. Raises RunIndexUnavailable."""
        async with self._lock:
            await self._flush()

    async def flush_now_and_then(self) -> None:
        """Saves what changes, soon after it has."""
        while True:
            await self._due.wait()
            await asyncio.sleep(_FLUSH_SECONDS)
            try:
                await self.flush()
            except RunIndexUnavailable as error:
                log.warning("the list of runs is not saved: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    def beside(self) -> RunIndex:
        """An empty one of the same streams, to be filled from the journals and adopted."""
        place = msgspec.structs.replace(self._place, positions=[0] * len(self._place.positions))
        return RunIndex(self._database.beside(), place, Removals())

    async def adopt(self, other: RunIndex, caught_up: Callable[[Sequence[int]], Awaitable[None]]) -> None:
        """Takes the place of what it knows with what the other knows, once that has what this one has:
        `caught_up` returns when the other has everything up to the given positions. Raises RunIndexUnavailable."""
        async with self._lock:  # nothing is taken in meanwhile
            await caught_up(self.positions_read())
            await other.flush()
            await self._database.adopt(other._database)
            other.is_closed = True
            self._trees.clear()
            self._changed.clear()
            self._changes = 0
            self._place, found = other._place, other.removals
            for name in Removals.__struct_fields__:  # others hold on to this one
                mine = getattr(self.removals, name)
                mine.clear()
                mine.update(getattr(found, name))
            self._saved_removals = msgspec.json.encode(self.removals)

    async def bytes(self) -> int:
        """How much room the database takes."""
        return await self._database.bytes()

    async def close(self) -> None:
        """Saves what has changed and lets go of the database. Raises RunIndexUnavailable."""
        async with self._lock:
            self.is_closed = True
            try:
                await self._flush()
            finally:
                await self._database.close()

    # --- what is asked of it; every one of these raises RunIndexUnavailable

    async def read(self, query: SqlQuery) -> list[Row]:
        """The rows of everything that was read by now."""
        await self.flush()
        return await self._database.read(query)

    async def get(self, tree: str, run: str) -> RunSummary | None:
        """None when no run of this id is known."""
        if (known := self._trees.get(tree)) is not None:
            return known.runs.runs.get(run)
        rows = await self.read(SqlQuery("SELECT summary FROM runs WHERE id = ?", (run,)))
        return _summary(rows[0][0]) if rows else None

    async def extent(self, tree: str) -> tuple[int, int]:
        """The sequence before which there is no entry of the tree, and that of its last entry; 0 where it is not
        known."""
        if (known := self._trees.get(tree)) is not None:
            return known.runs.first, known.runs.last
        rows = await self.read(SqlQuery("SELECT first, last FROM trees WHERE tree = ?", (tree,)))
        return rows[0] if rows else (0, 0)

    async def runs_of_tree(self, tree: str) -> list[RunSummary]:
        """All known runs of a tree."""
        if (known := self._trees.get(tree)) is not None:
            return list(known.runs.runs.values())
        sql = "SELECT summary FROM runs WHERE tree = ? ORDER BY started_at, id"
        return [_summary(body) for (body,) in await self.read(SqlQuery(sql, (tree,)))]

    async def tombstone(self, tree: str) -> Tombstone | None:
        """When the tree was erased; None for one that was not, or was started or imported since."""
        if (known := self._trees.get(tree)) is not None:
            return known.record.erased
        sql = "SELECT erased_seq, erased_at FROM trees WHERE tree = ? AND erased_seq IS NOT NULL"
        rows = await self.read(SqlQuery(sql, (tree,)))
        return Tombstone(*rows[0]) if rows else None

    async def last_of(self, tree: str) -> int:
        """Sequence of the newest entry or file of the tree; 0 for one that is not there."""
        if (known := self._trees.get(tree)) is not None:
            return known.record.last
        rows = await self.read(SqlQuery("SELECT newest FROM trees WHERE tree = ?", (tree,)))
        return int(rows[0][0]) if rows else 0

    async def is_referenced(self, blob: str) -> bool:
        """Whether any tree that is there references the blob."""
        return bool(await self.read(SqlQuery("SELECT 1 FROM blobs WHERE blob = ? LIMIT 1", (blob,))))

    async def list(
        self, wanted: RunFilter, *, order: Order = "started", limit: int = 50, before: str | None = None
    ) -> tuple[list[RunSummary], str | None]:
        """A page of runs, and the `before` of the next page (None: this is the last one). Raises KeyError when
        `before` is none."""
        place = cursor_of(before) if before is not None else None
        rows = await self.read(page_query(wanted, order, limit + 1, place))
        found = [(_summary(body), value) for body, value in rows[:limit]]
        more = Cursor(found[-1][1], found[-1][0].id) if len(rows) > limit else None
        return [summary for summary, _ in found], str(more) if more is not None else None

    async def count(self, wanted: RunFilter) -> int:
        """How many runs there are."""
        return int((await self.read(count_query(wanted)))[0][0])

    # --- saving, with the lock held

    async def _load(self, tree: str) -> IndexedTree:
        first, *others = queries_of(tree)
        heads = await self._database.read(first)
        if not heads:
            return IndexedTree(tree)
        return tree_of_rows(tree, [heads, *await self._database.read_all(others)])

    async def _flush(self) -> None:
        removals, positions = msgspec.json.encode(self.removals), list(self.positions_read())
        if not self._changed and removals == self._saved_removals and positions == self._place.positions:
            return
        place = msgspec.structs.replace(self._place, positions=positions, saved_at=time.time())
        meta = [(_PLACE, msgspec.json.encode(place).decode()), (_REMOVALS, removals.decode())]
        changed = list(self._changed.values())
        try:
            await self._database.write([*statements_for(changed), Statement(_META, meta)])
        except RunIndexUnavailable as error:
            self.failure = error
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
        while self._trees and (len(self._trees) > _CACHED_TREES or runs > _CACHED_RUNS):
            _, gone = self._trees.popitem(last=False)
            runs -= len(gone.runs.runs)


async def open_index(database: Database, streams: list[str]) -> RunIndex:
    """The index as it was saved, or one of nothing, if that is of other streams or too old. Raises
    RunIndexUnavailable."""
    rows = await database.read(SqlQuery("SELECT name, value FROM meta"))
    saved: dict[str, str] = dict(rows)
    if _PLACE in saved:
        place = msgspec.json.decode(saved[_PLACE], type=SavedPlace)
        if place.streams == streams and time.time() - place.saved_at < _MAX_AGE_SECONDS:
            log.info("the index has the journals up to %s", place.positions)
            return RunIndex(database, place, msgspec.json.decode(saved[_REMOVALS], type=Removals))
        log.info("the index is of other streams, or too old: reading the journals from their start")
        await database.write([Statement(f"DELETE FROM {table}", [()]) for table in DATA_TABLES])
    return RunIndex(
        database,
        SavedPlace(streams=streams, positions=[0] * len(streams), saved_at=time.time()),
        Removals(),
    )


def _summary(body: bytes) -> RunSummary:
    return msgspec.json.decode(body, type=RunSummary)
