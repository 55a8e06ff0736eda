"""The embedded engine as a store: its process is started again when it dies, and asked again."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TypeVar

import msgspec

from cadre_memory.index.edge import frames
from cadre_memory.index.edge.child import Timing
from cadre_memory.index.edge.process import EdgeProcess, ProcessEnded
from cadre_memory.index.filters import Selection
from cadre_memory.index.store import Backend, Found, Point, Query, Records
from cadre_memory.index.vector_index import IndexRefused, IndexUnavailable

log = logging.getLogger("cadre.memory")

_TRIES = 3
"""Of a request: one that kills the engine each time is given up."""

T = TypeVar("T")


class EdgeStore:
    """Owns `directory`; nobody else can open it meanwhile."""

    backend: Backend = "edge"

    def __init__(self, directory: Path, timing: Timing, patience: float, process: EdgeProcess) -> None:
        self._directory = directory
        self._timing = timing
        self._patience = patience
        self._process = process
        self._starting = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(
        cls, directory: Path, *, timing: Timing | None = None, patience: float = 60.0
    ) -> EdgeStore:
        """`patience`: seconds for one answer. Raises IndexRefused when the directory is in use or cannot be read."""
        timing = timing or Timing()
        return cls(directory, timing, patience, await EdgeProcess.start(directory, timing))

    @property
    def pid(self) -> int:
        """Of the engine's process."""
        return self._process.pid

    async def collections(self) -> list[str]:
        return await self._ask(frames.Collections(), list[str])

    async def create(self, collection: str) -> None:
        await self._ask(frames.Create(collection), None)

    async def drop(self, collection: str) -> None:
        await self._ask(frames.Drop(collection), None)

    async def aliases(self) -> dict[str, str]:
        return await self._ask(frames.Aliases(), dict[str, str])

    async def point(self, aliases: dict[str, str | None]) -> None:
        await self._ask(frames.PointAliases(aliases), None)

    async def upsert(self, collection: str, points: list[Point], *, only_new: bool = False) -> None:
        await self._ask(frames.Upsert(collection, points, only_new), None)

    async def set_dense(self, collection: str, vectors: dict[str, list[list[float]]]) -> None:
        await self._ask(frames.SetDense(collection, vectors), None)

    async def search(self, collection: str, query: Query, selection: Selection) -> list[Found]:
        return await self._ask(frames.Search(collection, query, selection), list[Found])

    async def scroll(
        self,
        collection: str,
        selection: Selection,
        *,
        limit: int,
        after: str | None = None,
        fields: list[str] | None = None,
    ) -> Records:
        return await self._ask(frames.Scroll(collection, selection, limit, after, fields), Records)

    async def count(self, collection: str, selection: Selection) -> int:
        return await self._ask(frames.Count(collection, selection), int)

    async def delete(self, collection: str, selection: Selection) -> int:
        return await self._ask(frames.Delete(collection, selection), int)

    async def flush(self) -> None:
        """What was acknowledged then survives a power cut too."""
        await self._ask(frames.Flush(), None)

    async def vacuum(self) -> None:
        """Rewrites files with many dead points, which it otherwise does when idle."""
        await self._ask(frames.Vacuum(), None)

    async def close(self) -> None:
        self._closed = True
        async with self._starting:
            await self._process.close()

    async def _ask(self, request: frames.AnyRequest, kind: type[T] | None) -> T:
        for _ in range(_TRIES):
            process = await self._living()
            try:
                async with asyncio.timeout(self._patience):
                    answer = await process.ask(request)
            except ProcessEnded:
                continue
            except TimeoutError:
                raise IndexUnavailable(
                    f"the engine has not answered for {self._patience:g} s: it is busy, or hangs"
                ) from None
            return msgspec.msgpack.decode(answer, type=kind)
        raise IndexUnavailable(f"the engine's process died {_TRIES} times at the same request")

    async def _living(self) -> EdgeProcess:
        async with self._starting:
            if self._closed:
                raise IndexUnavailable("the index is closed")
            if not self._process.alive:
                await self._process.end()
                log.warning("the engine's process %d has died; starting it again", self._process.pid)
                try:
                    self._process = await EdgeProcess.start(self._directory, self._timing)
                except IndexRefused as error:
                    raise IndexUnavailable(str(error)) from error
            return self._process
