"""Finds memories by meaning and by words; by words alone when meanings are not to be had, and then says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from cadre.errors import ModelError
from cadre_memory.embedding.embedder import Embedder
from cadre_memory.embedding.open import NO_EMBEDDINGS
from cadre_memory.index.vector_index import Hit, Index, Where, Within
from cadre_memory.text.bm25 import encode_query

_MOST = 400
"""Hits to look at for as many different texts as are asked for."""


_MOST_CHARS = 8000
"""Of a query that are looked at: an agent's task may be a whole document."""


class Outcome(NamedTuple):
    hits: list[Hit]
    degraded: bool
    why: str


class Searcher:
    """`seconds` is how long a query waits for its vector; `trouble` tells why no vector would be of use now;
    `answered` is called when the embedder has made one."""

    def __init__(
        self,
        index: Index,
        embedder: Embedder | None,
        seconds: float,
        trouble: Callable[[], str | None],
        answered: Callable[[], None],
    ) -> None:
        self._index = index
        self._embedder = embedder
        self._seconds = seconds
        self._trouble = trouble
        self._answered = answered

    async def search(
        self, query: str, within: Within, where: Where, k: int, min_score: float | None = None
    ) -> Outcome:
        """At most `k` hits, the best first, no text twice. Raises what the index raises."""
        query = query[:_MOST_CHARS]
        dense, why = await self._vector(query)
        words = encode_query(query)
        sparse = words if words.indices else None
        if not within.any_of or (sparse is None and dense is None):
            return Outcome([], bool(why), why)
        limit = 2 * k
        while True:
            found = await self._index.search(
                sparse=sparse, dense=dense, within=within, where=where, limit=limit
            )
            different = _different(found)
            if len(different) >= k or len(found) < limit or limit >= _MOST:
                break
            limit = min(4 * limit, _MOST)
        good = [hit for hit in different if min_score is None or hit.score >= min_score]
        return Outcome(good[:k], bool(why), why)

    async def _vector(self, query: str) -> tuple[list[float] | None, str]:
        """The vector, or why there is none."""
        if self._embedder is None:
            return None, NO_EMBEDDINGS
        if (trouble := self._trouble()) is not None:
            return None, f"only words were compared: {trouble}"
        try:
            async with asyncio.timeout(self._seconds):
                vector = await self._embedder.query(query)
        except ModelError as error:
            return None, f"only words were compared: {error}"
        except TimeoutError:
            return None, f"only words were compared: no vector of the query within {self._seconds:g} s"
        self._answered()
        return vector, ""


def _different(found: list[Hit]) -> list[Hit]:
    """The best hit of each text."""
    seen: set[str] = set()
    different = []
    for hit in found:
        if hit.chunk.hash not in seen:
            seen.add(hit.chunk.hash)
            different.append(hit)
    return different
