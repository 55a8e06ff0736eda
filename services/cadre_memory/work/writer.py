"""What calls bring in goes to the index in batches; as much waits as there is room for, the rest waits outside."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from cadre.errors import CadreError, TerminalError
from cadre_memory.index.vector_index import Chunk, Index, Vectors

BATCH = 64
"""Points that are stored together."""

_ROOM = 64
"""Memories that wait for their turn."""

Point = tuple[Chunk, Vectors]


class _Job(NamedTuple):
    points: list[Point]
    stored: asyncio.Future[None]


class Writer:
    """One writer of an index. `run` does the work, in a task of its own."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue(_ROOM)

    async def store(self, points: list[Point]) -> None:
        """Returns when the points are durable. Raises what the index raises for them."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._jobs.put(_Job(points, stored))
        await stored

    async def run(self) -> None:
        while True:
            # While one batch is stored the next one gathers: under load they are full, else nobody waits.
            jobs = [await self._jobs.get()]
            while not self._jobs.empty() and sum(len(job.points) for job in jobs) < BATCH:
                jobs.append(self._jobs.get_nowait())
            await self._store(jobs)

    async def _store(self, jobs: list[_Job]) -> None:
        points = [point for job in jobs for point in job.points]
        try:
            for at in range(0, len(points), BATCH):
                await self._index.upsert(points[at : at + BATCH])
        except TerminalError as error:
            if len(jobs) > 1:
                # One of them is wrong: the others have their turn without it.
                for job in jobs:
                    await self._store([job])
                return
            _tell(jobs, error)
        except CadreError as error:
            _tell(jobs, error)
        else:
            _tell(jobs, None)


def _tell(jobs: list[_Job], error: CadreError | None) -> None:
    for job in jobs:
        if job.stored.done():
            continue  # whoever waited has gone
        if error is None:
            job.stored.set_result(None)
        else:
            job.stored.set_exception(error)
