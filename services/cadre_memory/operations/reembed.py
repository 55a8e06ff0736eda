"""Move all memories to the collection of this process's model, while they are read and written.

A killed move continues. It needs no list of deletions, however many processes write: stores and deletes reach the live
collection first and the next one then. A copy whose source is gone after the copy was written was overtaken by a delete
and is removed here; any later delete reaches the copy. One pass copies what was there at the start. What came later was
written to both. A second pass compares.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

import msgspec

from cadre.errors import CadreError
from cadre_memory.bm25 import encode_document
from cadre_memory.index import vector_index
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import Chunk, Point, PointRecord, PointSelector, Vectors, check_points
from cadre_memory.operations.writing import ChunkEmbedder

log = logging.getLogger("cadre.memory")

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0

_LOOK_EVERY_SECONDS = 30.0

BATCH_CHUNKS = 32
"""Chunks that are embedded at once."""

_PAGE_IDS = 500

Embed = Callable[[list[Chunk]], Awaitable[list[list[list[float]]]]]
"""Returns the dense vectors of each chunk, one for each of its windows."""


class Reembedder:
    """Migrates memories to this process's model. `run` does the work, in its own task: once, at the start.

    Afterwards it only looks whether a replica with another model has moved the memories away: two that are
    configured differently would move them to and fro for ever.
    """

    def __init__(self, index: MemoryIndex, embedder: ChunkEmbedder | None) -> None:
        self._index = index
        self._embedder = embedder
        self.problem: str | None = "starting"
        """The reason why this process's vectors do not compare with those that are stored; None when they do."""

    async def run(self) -> None:
        """Migrate, however often that fails, and then watch until it is cancelled."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._move()
                break
            except CadreError as error:
                self.problem = f"memories are not embedded with this model yet: {error}"
                log.warning("%s; going on in %g s", self.problem, pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        while True:
            self.problem = await self._elsewhere()
            await asyncio.sleep(_LOOK_EVERY_SECONDS)

    async def _move(self) -> None:
        if await self._index.live() != self._index.own:
            self.problem = "memories are being embedded again for another model"
        # Vectors are dear: where this process has none, those that others made are left where they are.
        await migrate(
            self._index,
            self._embedder.embed if self._embedder is not None else None,
            keep=self._embedder is None,
        )
        self.problem = None

    async def _elsewhere(self) -> str | None:
        try:
            if await self._index.live() != self._index.own:
                return "another process has moved the memories to its own model: configure both alike"
        except CadreError as error:
            log.warning("which model the memories have is not known at this moment: %s", error)
        return None


class Migration(NamedTuple):
    """The result of a migration, in points."""

    source: str
    target: str
    copied: int
    overtaken: int
    """The number of copies that were removed again because their source had been deleted."""


async def migrate(index: MemoryIndex, embed: Embed | None, *, keep: bool = False) -> Migration | None:
    """Copy all memories to the collection of the index's own model, and make it the live one.

    Return None when it is that already.

    `embed` is None for a model without embeddings. Readers go on in the old collection, by words alone where this
    model's vectors do not compare, and see all at the moment of the switch. `keep` leaves the old collection there (it
    is written no more, but deletes still reach it). Raises the exceptions of `embed` and of the index: call it again,
    and it goes on.
    """
    source = await index.live()
    if source == index.own:
        return None
    await _begin(index)
    log.info("memories move from %s to %s", source, index.own)
    copied = overtaken = 0
    for _ in ("copy", "compare"):
        stored, removed = await _copy(index, source, embed)
        copied += stored
        overtaken += removed + await _remove_overtaken(index, source)
    moved = {index.live_alias: index.own, index.next_alias: None, index.id_alias: index.own}
    await index.store.set_aliases(moved)
    log.info("memories have moved to %s: %d copied, %d overtaken by deletes", index.own, copied, overtaken)
    if not keep:
        await index.store.drop(source)
    return Migration(source, index.own, copied, overtaken)


async def _begin(index: MemoryIndex) -> None:
    """Have everybody write to both collections from here on. A migration to a third model, given up before, ends."""
    await index.store.create(index.own)
    abandoned = (await index.store.aliases()).get(index.next_alias)
    if abandoned != index.own:
        await index.store.set_aliases({index.next_alias: index.own})
    if abandoned not in (None, index.own):
        log.warning("the move to %s is given up", abandoned)
        await index.store.drop(abandoned)


async def _copy(index: MemoryIndex, source: str, embed: Embed | None) -> tuple[int, int]:
    """Return how many copies were stored, and how many of them were removed again."""
    copied = overtaken = 0
    async for records in _pages(index, source, BATCH_CHUNKS):
        known = await index.digests(index.own, [one.id for one in records])
        chunks = [
            vector_index.chunk(*one)
            for one in records
            if one.id not in known or known[one.id]["hash"] != one.payload["hash"]
        ]
        if not chunks:
            continue
        vectors = [Vectors(encode_document(one.text), []) for one in chunks]
        if embed is not None:
            dense = await embed(chunks)
            vectors = [Vectors(one.sparse, windows) for one, windows in zip(vectors, dense, strict=True)]
        await _store(index, list(zip(chunks, vectors, strict=True)), known)
        copied += len(chunks)
        overtaken += await _remove_without_source(index, source, [one.id for one in chunks])
    return copied, overtaken


async def _store(index: MemoryIndex, points: list[tuple[Chunk, Vectors]], known: dict[str, dict[str, str]]) -> None:
    """Store what is not there, as what was written meanwhile is newer; replaces what differs from its source."""
    made = [
        (msgspec.structs.replace(chunk, embed_state="done" if vectors.dense else "lexical"), vectors)
        for chunk, vectors in points
    ]
    check_points(made, index.schema.dim)
    for only_new in (True, False):
        batch = [
            Point(chunk.id, vector_index.payload(chunk), vectors.sparse, vectors.dense)
            for chunk, vectors in made
            if (chunk.id not in known) == only_new
        ]
        if batch:
            await index.store.upsert(index.own, batch, only_new=only_new)


async def _remove_overtaken(index: MemoryIndex, source: str) -> int:
    """Remove all copies without a source, also those that a kill kept from being checked when they were copied."""
    removed = 0
    async for records in _pages(index, index.own, _PAGE_IDS, fields=["hash"]):
        removed += await _remove_without_source(index, source, [one.id for one in records])
    return removed


async def _remove_without_source(index: MemoryIndex, source: str, ids: list[str]) -> int:
    left = await index.digests(source, ids)
    gone = [id for id in ids if id not in left]
    return await index.store.delete(index.own, PointSelector(ids=gone)) if gone else 0


async def _pages(
    index: MemoryIndex, collection: str, limit: int, fields: list[str] | None = None
) -> AsyncIterator[list[PointRecord]]:
    after: str | None = None
    while True:
        page = await index.store.scroll(collection, PointSelector(), limit=limit, after=after, fields=fields)
        if page.records:
            yield page.records
        if page.next is None:
            return
        after = page.next
