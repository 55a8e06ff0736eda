"""The embedded memory index's times to store and to find, as it grows."""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple
from uuid import UUID

from cadre_memory.bm25 import SparseVector
from cadre_memory.host import open_index
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import Chunk, Clause, Schema, Vectors, Where, Within

DIM = 384
WORDS = 40
"""Of a chunk, out of 20,000."""
PERSONS = 50
"""Each point is one person's; a search sees those of one."""
BATCH = 64
LARGEST_WITHIN = 60.0
"""Seconds that storing the largest number may take, unless `CADRE_BENCH_LARGE=1` says that it may take any."""


class Size(NamedTuple):
    points: int
    name: str


SIZES = [Size(1_000, "1k"), Size(10_000, "10k"), Size(100_000, "100k")]
SEARCHES = 100
SINGLES = 30

ONE = [Within(any_of=[Clause({"scope": "user", "user": f"p{n}"})]) for n in range(PERSONS)]
EVERYBODY = Within(any_of=[Clause({"scope": "user"})])


async def measure(quick: bool) -> dict[str, Any]:
    """At 1k and 10k points, and at 100k when allowed or quick enough; a quick pass ends at 10k."""
    values: dict[str, Any] = {}
    made = Made(random.Random(7))
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder:
        index = await open_index(Schema("bench", "bench", DIM), directory=Path(folder))
        try:
            for size in SIZES:
                if made.count and size.points > 10_000 and not _is_allowed(values, size, quick):
                    values[f"memory_inserts_per_second_{size.name}"] = "not measured: CADRE_BENCH_LARGE=1"
                    break
                values |= await _at(index, made, size)
                values["memory_points"] = made.count
        finally:
            await index.close()
    return values


def _is_allowed(values: dict[str, Any], size: Size, quick: bool) -> bool:
    if os.environ.get("CADRE_BENCH_LARGE") == "1":
        return True
    return not quick and size.points / values["memory_inserts_per_second_10k"] <= LARGEST_WITHIN


async def _at(index: MemoryIndex, made: Made, size: Size) -> dict[str, float]:
    began, before = time.perf_counter(), made.count
    while made.count < size.points - SINGLES:
        await index.upsert([made.point() for _ in range(min(BATCH, size.points - SINGLES - made.count))])
    rate = (made.count - before) / (time.perf_counter() - began)
    singles = []
    while made.count < size.points:
        point, at = made.point(), time.perf_counter()
        await index.upsert([point])
        singles.append((time.perf_counter() - at) * 1000)
    scoped = [await _search(index, made, made.chance.choice(ONE)) for _ in range(SEARCHES)]
    open_wide = [await _search(index, made, EVERYBODY) for _ in range(SEARCHES // 2)]
    return {
        f"memory_inserts_per_second_{size.name}": rate,
        f"memory_insert_p50_ms_{size.name}": median(singles),
        f"memory_search_p50_ms_{size.name}": median(scoped),
        f"memory_search_p99_ms_{size.name}": quantiles(scoped, n=100)[98],
        f"memory_search_all_p50_ms_{size.name}": median(open_wide),
    }


async def _search(index: MemoryIndex, made: Made, within: Within) -> float:
    """Milliseconds of one hybrid search for five."""
    sparse, dense = made.words(6), made.vector()
    at = time.perf_counter()
    hits = await index.search(sparse=sparse, dense=dense, within=within, where=Where(), limit=5)
    took = (time.perf_counter() - at) * 1000
    if not hits:
        raise RuntimeError("the search found nothing: it measures nothing")
    return took


class Made:
    """Points out of chance, the same each time."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.count = 0
        # Drawing 384 numbers for each point would take longer than storing it.
        self._vectors = [[chance.gauss(0, 1) for _ in range(DIM)] for _ in range(1000)]

    def point(self) -> tuple[Chunk, Vectors]:
        number = self.count
        self.count += 1
        chunk = Chunk(
            id=str(UUID(int=self.chance.getrandbits(128))),
            memory=f"m{number}",
            text=f"memory {number} " * 70,
            scope="user",
            tree=f"t{number // 50}",
            run=f"t{number // 50}",
            agent="bench",
            user=f"p{number % PERSONS}",
            kind="step",
            created_at=1.7e9 + number,
            hash=f"{number:064x}",
            embed_state="done",
        )
        return chunk, Vectors(self.words(WORDS), [self.vector()])

    def words(self, number: int) -> SparseVector:
        return SparseVector(sorted(self.chance.sample(range(20_000), number)), [1.0] * number)

    def vector(self) -> list[float]:
        return self.chance.choice(self._vectors)
