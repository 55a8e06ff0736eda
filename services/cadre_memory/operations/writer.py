"""Stores what calls remember in batches; when too much waits already, a call waits before it may queue."""

import asyncio
from typing import NamedTuple

from cadre.errors import CadreError, TerminalError
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import Chunk, Vectors

BATCH_POINTS = 64
"""How many points are stored together."""

_MAX_WAITING_JOBS = 64
"""How many memories may wait for their turn."""

ChunkVectors = tuple[Chunk, Vectors]


class _Job(NamedTuple):
    points: list[ChunkVectors]
    stored: asyncio.Future[None]


class Writer:
    """Writes to an index in batches. `run` does the work, in a task of its own."""

    def __init__(self, index: MemoryIndex) -> None:
        self._index = index
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue(_MAX_WAITING_JOBS)

    async def store(self, points: list[ChunkVectors]) -> None:
        """Stores points; they are durable when this returns. Raises what the index raises for them."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._jobs.put(_Job(points, stored))
        await stored

    async def run(self) -> None:
        """Stores batch after batch until it is cancelled."""
        while True:
            # While one batch is stored the next one gathers: under load they are full, else nobody waits.
            jobs = [await self._jobs.get()]
            while not self._jobs.empty() and sum(len(job.points) for job in jobs) < BATCH_POINTS:
                jobs.append(self._jobs.get_nowait())
            await self._store(jobs)

    async def _store(self, jobs: list[_Job]) -> None:
        points = [point for job in jobs for point in job.points]
        try:
            for at in range(0, len(points), BATCH_POINTS):
                await self._index.upsert(points[at : at + BATCH_POINTS])
        except TerminalError as error:
            if len(jobs) > 1:
                # One of them is wrong: the others have their turn without it.
                for job in jobs:
                    await self._store([job])
                return
            _settle(jobs, error)
        except CadreError as error:
            _settle(jobs, error)
        else:
            _settle(jobs, None)


def _settle(jobs: list[_Job], error: CadreError | None) -> None:
    for job in jobs:
        if job.stored.done():
            continue  # the caller was cancelled
        if error is None:
            job.stored.set_result(None)
        else:
            job.stored.set_exception(error)
