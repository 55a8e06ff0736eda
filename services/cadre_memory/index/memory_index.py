"""Index memories in any store: write each point to every collection that it belongs to, and check what is read.

The index keeps no state except two aliases. `<prefix>_live` names the collection that is read. `<prefix>_next`
names the target while memories are embedded for another model: then every write goes to both. Dense vectors go only
to the collection of their own model; elsewhere the point waits for the replicas that know the other model.
"""

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Self, TypeVar

import msgspec

from cadre_memory.bm25 import SparseVector
from cadre_memory.index import vector_index
from cadre_memory.index.vector_index import (
    Chunk,
    ChunkPage,
    CollectionGone,
    Condition,
    EmbedState,
    IndexStatus,
    IndexUnavailable,
    Point,
    PointRecord,
    PointSelector,
    Query,
    Schema,
    ScoredChunk,
    Store,
    Vectors,
    Where,
    Within,
    admits,
    check_dense,
    check_id,
    check_points,
    check_query,
    condition_of,
)

log = logging.getLogger("cadre.memory")

_BATCH_POINTS = 64
_MAX_POINTS = 1000
"""The most points of one answer."""
_MAX_TRIES = 5

_DIGEST = ["hash", "embed_state"]

T = TypeVar("T")


class MemoryIndex:
    """Keeps points in a store that it owns, and searches them. `open` makes one.

    All methods raise IndexUnavailable when the engine does not answer, IndexRefused when it will never take this.
    """

    def __init__(self, store: Store, own: Schema, prefix: str) -> None:
        self.store = store
        self.prefix = prefix
        self.schema = own
        self.own = own.collection(prefix)
        """Name of the collection of this process's model."""
        self.live_alias = f"{prefix}_live"
        self.next_alias = f"{prefix}_next"
        self._made_aliases = f"{prefix}_made_"
        self.id = ""
        """The time when it was made, and a random part: two indexes never have the same, and later ones have higher
        ones."""

    @classmethod
    async def open(cls, store: Store, own: Schema, *, prefix: str = "mem") -> Self:
        """Open the index; creates the model's collection unless another model's is live.

        Memories of another model are read until `migration.migrate` has moved them.
        """
        index = cls(store, own, prefix)
        aliases = await store.aliases()
        if aliases.get(index.live_alias, index.own) == index.own:
            await store.create(index.own)
            if index.live_alias not in aliases:
                await store.set_aliases({index.live_alias: index.own})
        index.id = await index._identify(aliases)
        return index

    @property
    def id_alias(self) -> str:
        """Name of the alias that keeps the index's id; what collection it names is of no meaning."""
        return f"{self._made_aliases}{self.id}"

    async def _identify(self, aliases: dict[str, str]) -> str:
        """Return the id of the index, which the first replica to open it gives it."""
        if not (ids := self._ids(aliases)):
            new = f"{int(time.time()):010d}_{secrets.token_hex(4)}"
            await self.store.set_aliases({f"{self._made_aliases}{new}": await self.live()})
            ids = self._ids(await self.store.aliases())
        return min(ids)

    def _ids(self, aliases: dict[str, str]) -> list[str]:
        begin = self._made_aliases
        return [alias.removeprefix(begin) for alias in aliases if alias.startswith(begin)]

    async def live(self) -> str:
        """Return the name of the collection that is read."""
        return (await self._current_collections())[0]

    async def upsert(self, points: list[tuple[Chunk, Vectors]]) -> None:
        """Store points durably: once it returns they survive kill -9. Repeating it changes nothing."""
        check_points(points, self.schema.dim)
        for part in _batches(points):

            async def put(collection: str, part: list[tuple[Chunk, Vectors]] = part) -> None:
                await self._put(collection, part)

            await self._write_to_all(self._current_collections, put)

    async def set_dense(self, vectors: dict[str, list[list[float]]]) -> None:
        """Add dense vectors to points that were stored without (by id) and mark them `done`."""
        check_dense(vectors, self.schema.dim)
        for part in _batches(list(vectors.items())):
            await self.store.set_dense(self.own, dict(part))

    async def search(
        self,
        *,
        sparse: SparseVector | None,
        dense: list[float] | None,
        within: Within,
        where: Where,
        limit: int,
    ) -> list[ScoredChunk]:
        """Return the best hits first, both legs fused by rank (RRF, k=2); one leg alone keeps its own scores."""
        check_query(sparse, dense, self.schema.dim)
        selector = PointSelector(within=within, where=where)
        condition = condition_of(selector)
        if not within.any_of or limit < 1:
            return []

        async def search(live: str) -> list[ScoredChunk]:
            # Vectors of another model do not compare: until all are embedded again, only words do.
            query = Query(
                sparse=sparse if sparse is not None and sparse.indices else None,
                dense=dense if live == self.own else None,
                limit=min(limit, _MAX_POINTS),
            )
            if query.sparse is None and query.dense is None:
                return []
            found = await self.store.search(live, query, selector)
            for one in found:
                _check(condition, PointRecord(one.id, one.payload))
            return [ScoredChunk(vector_index.chunk(one.id, one.payload), one.score) for one in found]

        return await self._read(search)

    async def scroll(self, *, within: Within, where: Where, limit: int, after: str | None = None) -> ChunkPage:
        """Return a page of at most `limit` chunks; `after` is the `next` of the page before."""
        if after is not None:
            check_id(after)
        selector = PointSelector(within=within, where=where)
        condition = condition_of(selector)
        if not within.any_of or limit < 1:
            return ChunkPage([], None)

        async def scroll(live: str) -> ChunkPage:
            found = await self.store.scroll(live, selector, limit=min(limit, _MAX_POINTS), after=after)
            for one in found.records:
                _check(condition, one)
            return ChunkPage([vector_index.chunk(*one) for one in found.records], found.next)

        return await self._read(scroll)

    async def pending(self, limit: int, after: str | None = None) -> ChunkPage:
        """Return points whose dense vectors are still to come, by id, for the service's own sweeper."""
        if self.own not in await self.store.collections():
            return ChunkPage([], None)
        waiting = PointSelector(state="pending")
        found = await self.store.scroll(self.own, waiting, limit=min(limit, _MAX_POINTS), after=after)
        return ChunkPage([vector_index.chunk(*one) for one in found.records], found.next)

    async def count(self, *, within: Within, where: Where) -> int:
        """Return how many points there are."""
        selector = PointSelector(within=within, where=where)
        condition_of(selector)  # refuses what must be refused
        if not within.any_of:
            return 0
        return await self._read(lambda live: self.store.count(live, selector))

    async def delete(self, *, within: Within, where: Where) -> int:
        """Remove points from every collection, expired ones too (hidden is not gone), verify that none is left, and
        returns how many there were."""
        selector = PointSelector(within=msgspec.structs.replace(within, at=None), where=where)
        condition_of(selector)  # refuses what must be refused
        return await self._delete(selector) if within.any_of else 0

    async def expire(self, at: float) -> int:
        """Remove from every collection what has expired by then (Unix seconds); returns how many points that was."""
        return await self._delete(PointSelector(expired_by=at))

    async def status(self) -> IndexStatus:
        """Return the state of the index."""
        aliases = await self.store.aliases()
        live = await self.live()
        return IndexStatus(
            backend=self.store.backend,
            collection=live,
            points=await self._read(lambda live: self.store.count(live, PointSelector())),
            dense=live == self.own and self.schema.dim is not None,
            moving=self.next_alias in aliases,
        )

    async def close(self) -> None:
        """Close the engine. The index cannot be used any more."""
        await self.store.close()

    async def _put(self, collection: str, points: list[tuple[Chunk, Vectors]]) -> None:
        """Store those that are not there yet: replacing a point would cost it the vectors that it got since."""
        ids = [chunk.id for chunk, _ in points]
        known = await self.digests(collection, ids)
        made = [self._point(collection, chunk, vectors) for chunk, vectors in points]
        wanted = [one for one in made if not _is_there(one, known.get(one.id))]
        if wanted:
            await self.store.upsert(collection, wanted)

    def _point(self, collection: str, chunk: Chunk, vectors: Vectors) -> Point:
        state: EmbedState
        if collection == self.own:
            state = "done" if vectors.dense else chunk.embed_state
            dense = vectors.dense
        else:
            state = "lexical" if vector_index.dim_of(collection) is None else "pending"
            dense = []
        fields = vector_index.payload(msgspec.structs.replace(chunk, embed_state=state))
        return Point(chunk.id, fields, vectors.sparse, dense)

    async def digests(self, collection: str, ids: list[str]) -> dict[str, dict[str, str]]:
        """Return `hash` and `embed_state` of those points that are there, by id."""
        found = await self.store.scroll(collection, PointSelector(ids=ids), limit=len(ids), fields=_DIGEST)
        return {one.id: one.payload for one in found.records}

    async def _delete(self, selector: PointSelector) -> int:
        """Remove from the live collection first: a migration then find that its copy's source is gone."""
        gone = 0

        async def delete(collection: str) -> None:
            nonlocal gone
            # A store that had to begin again does not know what it removed before.
            there = await self.store.count(collection, selector)
            removed = await self.store.delete(collection, selector)
            gone += max(there, removed) if collection == await self.live() else 0
            for _ in range(_MAX_TRIES):
                if not await self.store.count(collection, selector):
                    return
                await self.store.delete(collection, selector)
            raise IndexUnavailable(f"memories are stored in {collection} as fast as they are removed: try again")

        await self._write_to_all(self._all_collections, delete)
        return gone

    async def _write_to_all(
        self, listed: Callable[[], Awaitable[list[str]]], write: Callable[[str], Awaitable[None]]
    ) -> None:
        """Write to all collections that `listed` names, and again when it names others afterwards.

        So a collection that appears meanwhile gets it too, however many processes there are.
        """
        for _ in range(_MAX_TRIES):
            before = await listed()
            try:
                for collection in before:
                    await write(collection)
            except CollectionGone:
                continue
            if await listed() == before:
                return
        raise IndexUnavailable("the collections change faster than they can be written: try again")

    async def _read(self, read: Callable[[str], Awaitable[T]]) -> T:
        for _ in range(_MAX_TRIES):
            try:
                return await read(await self.live())
            except CollectionGone:
                continue
        raise IndexUnavailable("the collections change faster than they can be read: try again")

    async def _current_collections(self) -> list[str]:
        """Return the live collection, and the one that memories move to."""
        aliases = await self.store.aliases()
        if self.live_alias not in aliases:
            raise IndexUnavailable(f"{self.live_alias} names no collection: somebody removed it; start again")
        named = [aliases.get(alias) for alias in (self.live_alias, self.next_alias)]
        return [name for name in named if name is not None]

    async def _all_collections(self) -> list[str]:
        """Return the live collection first, then all others that may hold the same memories."""
        live = await self.live()
        rest = [name for name in await self.store.collections() if vector_index.is_collection(name, self.prefix)]
        return [live, *sorted(set(rest) - {live})]


def _check(condition: Condition, record: PointRecord) -> None:
    """Raise IndexUnavailable for a point that the filter should have left out, regardless of the engine's reason."""
    if not admits(condition, record.id, record.payload):
        log.error("the engine returned point %s, which its filter leaves out", record.id)
        raise IndexUnavailable("the engine returned a memory that the caller may not see: nothing is shown")


def _batches(items: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), _BATCH_POINTS):
        yield items[start : start + _BATCH_POINTS]


def _is_there(point: Point, known: dict[str, str] | None) -> bool:
    if known is None or known["hash"] != point.payload["hash"]:
        return False
    return known["embed_state"] == "done" or known["embed_state"] == point.payload["embed_state"]
