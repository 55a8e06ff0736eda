"""Adds dense vectors to what was stored without: one batch after the other, for as long as any is pending."""

import asyncio
import contextlib
import logging

from cadre.errors import CadreError, ModelError, RetryableError, TerminalError
from cadre_memory.embedding.embedder import WindowVectors
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.operations.chunk_embedder import ChunkEmbedder

log = logging.getLogger("cadre.memory")

IDLE_SECONDS = 30.0
"""How long the sweeper waits for news before it asks the index anyway: another process may have stored something."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 20.0


class Sweeper:
    """Embeds the chunks that are pending. `run` does the work, in a task of its own; `batch` is in chunks."""

    def __init__(self, index: MemoryIndex, embedder: ChunkEmbedder, batch: int) -> None:
        self._index = index
        self._embedder = embedder
        self._batch = batch
        self._news = asyncio.Event()
        self._well = asyncio.Event()
        self._refused: set[str] = set()
        """Points whose text the model will not take; the next process tries them again."""
        self._after: str | None = None
        """Id where this round goes on; None before the next one begins."""
        self.problem: str | None = None
        """Why vectors cannot be had at this moment."""

    def lack(self) -> str:
        """Says which memories no meaning is compared with, and why; empty when it is with all that the model takes."""
        if self.problem is not None:
            return f"of what was stored last only words were compared: {self.problem}"
        if refused := len(self._refused):
            return (
                f"of {refused} chunks only words were compared: the embeddings model does not take their text"
            )
        return ""

    def retry_now(self) -> None:
        """Ends a pause after a failure: the model has just answered somebody."""
        self._well.set()

    def wake(self) -> None:
        """Ends the wait for news: something was stored that is pending."""
        self._news.set()

    async def run(self) -> None:
        """Embeds round after round until it is cancelled."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            if self._after is None:
                # What comes from here on is not missed, wherever in the round it lies and however long that takes.
                self._news.clear()
            self._well.clear()
            try:
                more = await self._sweep()
            except (ModelError, RetryableError) as error:
                self.problem = str(error)
                log.warning("vectors are added later: %s; trying again in %g s", error, pause)
                await _wait_for(self._well, _pause_after(error, pause))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                continue
            except CadreError as error:
                log.error("vectors cannot be stored: %s", error)
                self._after, more = None, False
            self.problem, pause = None, _FIRST_PAUSE_SECONDS
            if not more:
                await _wait_for(self._news, IDLE_SECONDS)

    async def _sweep(self) -> bool:
        """Embeds one batch; returns whether the round goes on. Refused points stay pending, and are passed over."""
        page = await self._index.pending(self._batch, self._after)
        if chunks := [chunk for chunk in page.chunks if chunk.id not in self._refused]:
            found_windows = zip(chunks, await self._embedder.embed(chunks), strict=True)
            vectors = {chunk.id: windows for chunk, windows in found_windows if windows}
            self._refused.update(chunk.id for chunk in chunks if chunk.id not in vectors)
            await self._store(vectors)
        self._after = page.next
        return self._after is not None

    async def _store(self, vectors: dict[str, WindowVectors]) -> None:
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


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Waits for the event, at most so long."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _pause_after(error: CadreError, pause: float) -> float:
    """Returns the seconds to wait: what the endpoint asks for, when that is longer."""
    asked: float | None = getattr(error, "retry_after", None)
    return pause if asked is None else max(pause, asked)
