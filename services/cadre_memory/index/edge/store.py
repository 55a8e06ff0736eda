"""The embedded engine as a store. When its process dies it is started again, and the request repeated."""

import asyncio
import logging
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from cadre_memory.index.edge.child import EngineTiming
from cadre_memory.index.edge.process import EdgeProcess, ProcessEnded
from cadre_memory.index.filters import PointSelector
from cadre_memory.index.store import Backend, Point, Query, RecordPage, ScoredPoint, Store
from cadre_memory.index.vector_index import IndexRefused, IndexUnavailable

log = logging.getLogger("cadre.memory")

_MAX_TRIES = 3
"""How often a request may kill the engine before it is given up."""

T = TypeVar("T")


class EdgeStore(Store):
    """Keeps collections in a directory that it owns: nobody else can open it meanwhile."""

    backend: Backend = "edge"

    def __init__(
        self, directory: Path, timing: EngineTiming, answer_seconds: float, process: EdgeProcess
    ) -> None:
        self._directory = directory
        self._timing = timing
        self._answer_seconds = answer_seconds
        self._process = process
        self._starting = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(
        cls, directory: Path, *, timing: EngineTiming | None = None, answer_seconds: float = 60.0
    ) -> Self:
        """Starts the engine on a directory; each answer may take `answer_seconds`.

        Raises IndexRefused when the directory is in use or cannot be read.
        """
        timing = timing or EngineTiming()
        return cls(directory, timing, answer_seconds, await EdgeProcess.start(directory, timing))

    @property
    def pid(self) -> int:
        """The id of the engine's process."""
        return self._process.pid

    async def collections(self) -> list[str]:
        return await self._ask(list[str], "collections")

    async def create(self, collection: str) -> None:
        await self._ask(None, "create", collection)

    async def drop(self, collection: str) -> None:
        await self._ask(None, "drop", collection)

    async def aliases(self) -> dict[str, str]:
        return await self._ask(dict[str, str], "aliases")

    async def set_aliases(self, aliases: dict[str, str | None]) -> None:
        await self._ask(None, "set_aliases", aliases)

    async def upsert(self, collection: str, points: list[Point], *, only_new: bool = False) -> None:
        await self._ask(None, "upsert", collection, points, only_new)

    async def set_dense(self, collection: str, vectors: dict[str, list[list[float]]]) -> None:
        await self._ask(None, "set_dense", collection, vectors)

    async def search(self, collection: str, query: Query, selector: PointSelector) -> list[ScoredPoint]:
        return await self._ask(list[ScoredPoint], "search", collection, query, selector)

    async def scroll(
        self,
        collection: str,
        selector: PointSelector,
        *,
        limit: int,
        after: str | None = None,
        fields: list[str] | None = None,
    ) -> RecordPage:
        return await self._ask(RecordPage, "scroll", collection, selector, limit, after, fields)

    async def count(self, collection: str, selector: PointSelector) -> int:
        return await self._ask(int, "count", collection, selector)

    async def delete(self, collection: str, selector: PointSelector) -> int:
        return await self._ask(int, "delete", collection, selector)

    async def flush(self) -> None:
        """Brings everything to the disk: what was acknowledged then survives a power cut too."""
        await self._ask(None, "flush")

    async def vacuum(self) -> None:
        """Rewrites files with many dead points, as the engine does by itself when it is idle."""
        await self._ask(None, "vacuum")

    async def close(self) -> None:
        self._closed = True
        async with self._starting:
            await self._process.close()

    async def _ask(self, kind: type[T] | None, operation: str, *arguments: Any) -> T:
        """Has the engine do an operation of `engine.ARGUMENTS`, and returns its value, which is of this type.

        Raises CollectionGone and IndexUnavailable.
        """
        for _ in range(_MAX_TRIES):
            process = await self._living()
            try:
                async with asyncio.timeout(self._answer_seconds):
                    answer = await process.ask(operation, *arguments)
            except ProcessEnded:
                continue
            except TimeoutError:
                raise IndexUnavailable(
                    f"the engine has not answered for {self._answer_seconds:g} s: it is busy, or hangs"
                ) from None
            return msgspec.msgpack.decode(answer, type=kind)
        raise IndexUnavailable(f"the engine's process died {_MAX_TRIES} times at the same request")

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
