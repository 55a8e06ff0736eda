"""Adds dense vectors to what was stored without: one batch after the other, for as long as any is pending."""

from __future__ import annotations

import asyncio
import logging

from cadre.errors import CadreError, ModelError, ModelRefused, RetryableError, TerminalError
from cadre_memory.embedding.embedder import Embedder, Windows
from cadre_memory.index.vector_index import Chunk, Index

log = logging.getLogger("cadre.memory")

IDLE = 30.0
"""Seconds after which the index is asked even though nobody said that there is news: another process may have
stored something."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 20.0

_TEXT_IS_WRONG = (400, 413, 422)
"""Statuses by which an endpoint refuses a text, not whoever asks."""


class Sweeper:
    """`run` does the work, in a task of its own."""

    def __init__(self, index: Index, embedder: Embedder, batch: int) -> None:
        self._index = index
        self._embedder = embedder
        self._batch = batch
        self._news = asyncio.Event()
        self._well = asyncio.Event()
        self._refused: set[str] = set()
        """Points whose text the model will not take; asked again by the next process."""
        self._after: str | None = None
        """Where this round goes on; None before the next one begins."""
        self.trouble: str | None = None
        """Why vectors cannot be had at this moment."""

    def encourage(self) -> None:
        """The model has just answered somebody: there is no need to wait any longer."""
        self._well.set()

    def wake(self) -> None:
        """Something was stored that is pending."""
        self._news.set()

    async def run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            if self._after is None:
                # What comes from here on is not missed, wherever in the round it lies and however long that takes.
                self._news.clear()
            self._well.clear()
            try:
                more = await self._sweep()
            except (ModelError, RetryableError) as error:
                self.trouble = str(error)
                log.warning("vectors are added later: %s; trying again in %g s", error, pause)
                await self._wait(self._well, _wait(error, pause))
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            except CadreError as error:
                log.error("vectors cannot be stored: %s", error)
                self._after, more = None, False
            self.trouble, pause = None, _FIRST_PAUSE
            if not more:
                await self._wait(self._news, IDLE)

    async def _sweep(self) -> bool:
        """One batch; returns whether the round goes on. Those that were refused stay pending, and are passed over."""
        page = await self._index.pending(self._batch, self._after)
        if chunks := [chunk for chunk in page.chunks if chunk.id not in self._refused]:
            found_windows = zip(chunks, await embedded(self._embedder, chunks), strict=True)
            vectors = {chunk.id: windows for chunk, windows in found_windows if windows}
            self._refused.update(chunk.id for chunk in chunks if chunk.id not in vectors)
            await self._store(vectors)
        self._after = page.next
        return self._after is not None

    async def _store(self, vectors: dict[str, Windows]) -> None:
        try:
            if vectors:
                await self._index.set_dense(vectors)
        except TerminalError as error:
            if len(vectors) > 1:
                for id, windows in vectors.items():
                    await self._store({id: windows})
                return
            log.warning("chunk %s is found by its words only: %s", *vectors, error)
            self._refused.update(vectors)

    @staticmethod
    async def _wait(event: asyncio.Event, seconds: float) -> None:
        """For the event, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return


async def embedded(embedder: Embedder, chunks: list[Chunk]) -> list[Windows]:
    """The windows of each chunk; none of one whose text the model will not take. Raises ModelUnavailable, and
    ModelRefused when it refuses whoever asks."""
    try:
        return await embedder.documents([chunk.text for chunk in chunks])
    except ModelRefused as error:
        if error.status not in _TEXT_IS_WRONG:
            raise
        if len(chunks) > 1:
            # Which of them it is, is not said.
            half = len(chunks) // 2
            return await embedded(embedder, chunks[:half]) + await embedded(embedder, chunks[half:])
        log.warning("chunk %s is found by its words only: %s", chunks[0].id, error)
        return [[]]


def _wait(error: CadreError, pause: float) -> float:
    asked: float | None = getattr(error, "retry_after", None)
    return pause if asked is None else max(pause, asked)
