"""Finds memories by meaning and by words; by words alone when there are no vectors, and then says so."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cadre.errors import ModelError
from cadre_memory.bm25 import encode_query
from cadre_memory.embedding.embedder import Embedder
from cadre_memory.embedding.open import NO_EMBEDDINGS
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import ScoredChunk, Where, Within

_MAX_HITS = 400
"""Maximum number of hits that are read to find as many different texts as are asked for."""

_MAX_QUERY_CHARS = 8000
"""Maximum number of characters of a query that are used: an agent's task may be a whole document."""


class SearchOutcome(NamedTuple):
    """The result of a search."""

    hits: list[ScoredChunk]
    degraded: bool
    """True if meanings were not compared with all memories."""
    why: str
    """The reason for that; empty when it was not so."""


@dataclass(frozen=True)
class Searcher:
    """Searches an index by meaning and by words."""

    index: MemoryIndex
    embedder: Embedder | None
    seconds: float
    """Seconds that a query waits for its vector."""
    problem: Callable[[], str | None]
    """Returns the reason why no vector would be of use now."""
    lack: Callable[[], str]
    """Returns the memories without vectors, and the reason; empty when all have them, or will in a moment."""
    on_vector: Callable[[], None]
    """Called when the embedder has made one."""
    replaced: str = ""
    """Says that the index has taken the place of one whose memories it does not have; empty otherwise."""

    async def search(
        self, query: str, within: Within, where: Where, k: int, min_score: float | None = None
    ) -> SearchOutcome:
        """Return at most `k` hits, the best first, no text twice. Raises what the index raises."""
        query = query[:_MAX_QUERY_CHARS]
        dense, why = await self._vector(query)
        words = encode_query(query)
        sparse = words if words.indices else None
        if not within.any_of or (sparse is None and dense is None):
            return SearchOutcome([], bool(why), why)
        limit = 2 * k
        while True:
            found = await self.index.search(sparse=sparse, dense=dense, within=within, where=where, limit=limit)
            different = _different(found)
            if len(different) >= k or len(found) < limit or limit >= _MAX_HITS:
                break
            limit = min(4 * limit, _MAX_HITS)
        good = [hit for hit in different if min_score is None or hit.score >= min_score]
        said = why if good else "; ".join(filter(None, (self.replaced, why)))
        return SearchOutcome(good[:k], bool(why), said)

    async def _vector(self, query: str) -> tuple[list[float] | None, str]:
        """Return the vector, or the reason why it is missing."""
        if self.embedder is None:
            return None, NO_EMBEDDINGS
        if (problem := self.problem()) is not None:
            return None, f"only words were compared: {problem}"
        try:
            async with asyncio.timeout(self.seconds):
                vector = await self.embedder.query(query)
        except ModelError as error:
            return None, f"only words were compared: {error}"
        except TimeoutError:
            return None, f"only words were compared: no vector of the query within {self.seconds:g} s"
        self.on_vector()
        return vector, self.lack()


def _different(found: list[ScoredChunk]) -> list[ScoredChunk]:
    """Return the best hit of each text, in their order."""
    best: dict[str, ScoredChunk] = {}
    for hit in found:
        best.setdefault(hit.chunk.hash, hit)
    return list(best.values())
