"""Answer people's requests to the memory, within the selection that each request names."""

import re
from collections.abc import Sequence

import msgspec

from cadre.adapters.nats.memory import Answer
from cadre.errors import MemoryRefused
from cadre.ports import Clock
from cadre.protocol.memory import (
    MAX_HITS,
    ForgetRequest,
    Found,
    ImportedMemories,
    ImportRequest,
    Listed,
    ListRequest,
    Narrowing,
    Receipt,
    Remembered,
    SearchRequest,
    ShowRequest,
    Stats,
    StatsRequest,
)
from cadre_memory.embedding.embedder import Embedder
from cadre_memory.embedding.open import NO_EMBEDDINGS
from cadre_memory.index import scopes
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.scopes import SCOPES
from cadre_memory.index.vector_index import OWNER_OF, Chunk, Clause, EmbedState, Where, Within
from cadre_memory.operations.reembed import Reembedder
from cadre_memory.operations.search import Searcher
from cadre_memory.tools.keep import Workers, chunk_id, content_hash, keep_chunks, same_fields

_MAX_PAGE_BYTES = 700_000
"""Maximum size of a page: a message of the bus holds a megabyte."""


class RequestHandlers:
    """Answers the requests.

    All methods raise MemoryRefused for a request that says too little or too much, and what the index raises.
    """

    def __init__(
        self,
        index: MemoryIndex,
        searcher: Searcher,
        embedder: Embedder | None,
        reembedder: Reembedder,
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._index = index
        self._searcher = searcher
        self._embedder = embedder
        self._reembedder, self._sweeper = reembedder, workers.sweeper
        self._workers = workers
        self._clock = clock

    def by_verb(self) -> dict[str, Answer]:
        """Return the method that answers each verb."""
        return {
            "search": self.search,
            "list": self.list,
            "show": self.show,
            "forget": self.forget,
            "export": self.export,
            "import": self.import_all,
            "stats": self.stats,
        }

    async def search(self, request: SearchRequest) -> Found:
        """Return what fits the query best."""
        within = scopes.selected(request.selection, self._clock.now())
        if not request.query.strip():
            raise MemoryRefused("the query is empty: say what to look for")
        k = _bounded("k", request.k)
        found = await self._searcher.search(request.query, within, _where(request), k, request.min_score)
        hits = [remembered(hit.chunk, hit.score) for hit in found.hits]
        return Found(hits=hits, degraded=found.degraded, why=found.why)

    async def list(self, request: ListRequest) -> Listed:
        """Return a page of memories that have not expired."""
        return await self._page(request, scopes.selected(request.selection, self._clock.now()))

    async def export(self, request: ListRequest) -> Listed:
        """Return a page of memories, expired ones too."""
        return await self._page(request, scopes.selected(request.selection))

    async def import_all(self, request: ImportRequest) -> ImportedMemories:
        """Keep the content of an export; it is embedded again, by the model of this service."""
        _bounded("memories", len(request.memories))
        state: EmbedState = "lexical" if self._sweeper is None else "pending"
        await keep_chunks([imported_chunk(one, state) for one in request.memories], self._workers)
        return ImportedMemories(kept=len(request.memories))

    async def show(self, request: ShowRequest) -> Listed:
        """Return the chunks of one memory in order, as many as fit in an answer."""
        at = first = _place(request.after)
        chunks: list[Chunk] = []
        size = 0
        while at == first or (chunks and at < chunks[0].count):
            for chunk in await self._chunks(request.memory, at):
                size += _size([chunk])
                if chunks and size > _MAX_PAGE_BYTES:
                    return Listed(memories=[remembered(one) for one in chunks], next=str(chunk.index))
                chunks.append(chunk)
            at += MAX_HITS
        if not chunks:
            raise MemoryRefused(f"there is no memory {request.memory!r} (any more)", not_found=True)
        return Listed(memories=[remembered(one) for one in chunks], next=None)

    async def _chunks(self, memory: str, at: int) -> Sequence[Chunk]:
        """Return some chunks of a memory from this one on, in order.

        They are read by their ids, which are derived: a scroll would go in the order of the ids.
        """
        ids = [chunk_id(memory, index) for index in range(at, at + MAX_HITS)]
        where = msgspec.structs.replace(_memory(memory), ids=ids)
        within = scopes.everything(self._clock.now())
        page = await self._index.scroll(within=within, where=where, limit=MAX_HITS)
        return sorted(page.chunks, key=lambda chunk: chunk.index)

    async def forget(self, request: ForgetRequest) -> Receipt:
        """Remove memories once that is confirmed, expired ones too; says how many there are otherwise."""
        if (request.memory is None) == (request.selection is None):
            raise MemoryRefused("name one memory, or give a selection")
        within, where = scopes.everything(), Where()
        if request.selection is not None:
            within = scopes.selected(request.selection)
        elif request.memory is not None:
            where = _memory(request.memory)
        matched = await self._index.count(within=within, where=where)
        if request.memory is not None and not matched:
            raise MemoryRefused(f"there is no memory {request.memory!r} (any more)", not_found=True)
        forgotten = 0
        if request.confirm:
            forgotten = await self._index.delete(within=within, where=where)
        left = await self._index.count(within=within, where=where)
        return Receipt(confirmed=request.confirm, matched=matched, forgotten=forgotten, left=left, at=self._clock.now())

    async def stats(self, _: StatsRequest) -> Stats:
        """Return how many chunks there are, and how they are searched."""
        condition = await self._index.status()
        chunks: dict[str, int] = {
            scope: await self._index.count(within=Within(any_of=[Clause({"scope": scope})]), where=Where())
            for scope in SCOPES
        }
        why = self.degraded() or (self._sweeper.lack() if self._sweeper is not None else "")
        return Stats(
            chunks=chunks,
            pending=bool((await self._index.pending(1)).chunks),
            index=f"{condition.backend}: {condition.collection}",
            embeddings=str(self._embedder.fingerprint) if self._embedder is not None else "none",
            degraded=bool(why),
            why=why,
        )

    def degraded(self) -> str:
        """Return why only words are compared at this moment; empty when meanings are too."""
        if self._embedder is None or self._sweeper is None:
            return NO_EMBEDDINGS
        return self._reembedder.problem or self._sweeper.problem or ""

    async def _page(self, request: ListRequest, within: Within) -> Listed:
        limit = _bounded("limit", request.limit)
        while True:
            page = await self._index.scroll(within=within, where=_where(request), limit=limit, after=request.after)
            if limit == 1 or _size(page.chunks) <= _MAX_PAGE_BYTES:
                return Listed(memories=[remembered(chunk) for chunk in page.chunks], next=page.next)
            limit = max(1, limit // 2)


def remembered(chunk: Chunk, score: float | None = None) -> Remembered:
    """Return the chunk as it is shown to people."""
    return Remembered(
        **same_fields(chunk, Remembered),
        at=chunk.created_at,
        embedded=chunk.embed_state == "done",
        score=score,
    )


def _where(request: Narrowing) -> Where:
    return Where(kinds=request.kinds, since=request.since, until=request.until)


def _memory(memory: str) -> Where:
    if not memory:
        raise MemoryRefused("the memory's id is empty")
    return Where(memory=memory)


def _place(after: str | None) -> int:
    try:
        place = int(after or 0)
    except ValueError:
        place = -1
    if place < 0:
        raise MemoryRefused(f"after={after!r}: must be the `next` of the page before")
    return place


def _bounded(what: str, number: int) -> int:
    if not 1 <= number <= MAX_HITS:
        raise MemoryRefused(f"{what}={number}: must be from 1 to {MAX_HITS}")
    return number


def _size(chunks: list[Chunk]) -> int:
    return len(msgspec.json.encode(chunks))


def imported_chunk(one: Remembered, state: EmbedState) -> Chunk:
    """Return the point that the line of an export was made from, still without its vectors. Raises MemoryRefused."""
    if one.id != chunk_id(one.memory, one.index):
        raise MemoryRefused(f"{one.id} is not chunk {one.index} of {one.memory!r}: import lines as they were exported")
    if not getattr(one, OWNER_OF[one.scope]):
        raise MemoryRefused(f"{one.id} is of scope {one.scope} and names no {OWNER_OF[one.scope]}")
    if not re.search(r"\S", one.text):
        raise MemoryRefused(f"{one.id} has no text")
    fields = {name: getattr(one, name) for name in Chunk.__struct_fields__ if hasattr(one, name)}
    return Chunk(**fields, created_at=one.at, hash=content_hash(one.text), embed_state=state)
