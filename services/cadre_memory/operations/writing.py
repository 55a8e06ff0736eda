"""Store what calls remember in batches, and embed stored chunks that lack dense vectors until none is pending. When
too much waits already, a call waits before it may queue."""

import asyncio
import contextlib
import logging
from typing import NamedTuple

from cadre.errors import CadreError, ModelError, ModelRefused, RetryableError, TerminalError
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters
from cadre_memory.embedding.embedder import Embedder, WindowVectors
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import Chunk, Vectors

log = logging.getLogger("cadre.memory")

IDLE_SECONDS = 30.0
"""Seconds that the sweeper waits for news before it asks the index anyway: another process may have stored something.
"""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 20.0

_TEXT_REFUSED_STATUSES = (400, 413, 422)
"""Statuses by which an endpoint refuses a text, and not the caller."""

_SHORTEST_CHARS = 200
"""A text shorter than this is refused for something else than its length."""


class ChunkEmbedder:
    """Embeds chunks, logs and counts those that the model does not take as they are."""

    def __init__(self, embedder: Embedder, meters: Meters | None = None) -> None:
        self._embedder = embedder
        self._meters = meters or Meters(on=False)
        self._has_told = False

    async def embed(self, chunks: list[Chunk]) -> list[WindowVectors]:
        """Return the vectors of each chunk; none for one whose text the model will not take, however short.

        Raises ModelUnavailable, and ModelRefused when it refuses the caller.
        """
        try:
            return await self._embedder.documents([chunk.text for chunk in chunks])
        except ModelRefused as error:
            if error.status not in _TEXT_REFUSED_STATUSES:
                raise
            refusal = error
        if len(chunks) > 1:
            # Which of them it is, is not said.
            half = len(chunks) // 2
            return await self.embed(chunks[:half]) + await self.embed(chunks[half:])
        [chunk] = chunks
        windows = await self._in_parts(chunk.text)
        self._tell(chunk, windows, refusal)
        return [windows]

    async def _in_parts(self, text: str) -> WindowVectors:
        """Return the vectors of a refused text's parts; none when a part of it is refused however short it is."""
        windows: WindowVectors = []
        for part in _halves(text):
            try:
                [found] = await self._embedder.documents([part])
            except ModelRefused as error:
                if error.status not in _TEXT_REFUSED_STATUSES:
                    raise
                found = await self._in_parts(part)
            if not found:
                return []
            windows += found
        return windows

    def _tell(self, chunk: Chunk, windows: WindowVectors, error: ModelRefused) -> None:
        self._meters.record(names.MEMORY_REFUSED_CHUNKS, 1, {names.OUTCOME: "parts" if windows else "words_only"})
        if not windows:
            log.warning("chunk %s is found by its words only: %s", chunk.id, error)
            return
        # Where the model takes little this is so for most chunks.
        level = logging.DEBUG if self._has_told else logging.WARNING
        self._has_told = True
        log.log(level, "chunk %s is embedded in %d parts: %s", chunk.id, len(windows), error)


def _halves(text: str) -> list[str]:
    """Return the text cut in two where a word ends; nothing for one that is too short for that."""
    if len(text) < _SHORTEST_CHARS:
        return []
    middle = len(text) // 2
    cut = text.find(" ", middle, middle + _SHORTEST_CHARS // 4)
    cut = cut if cut > 0 else middle
    return [part for part in (text[:cut], text[cut:]) if part.strip()]


class Sweeper:
    """Embeds the chunks that are pending. `run` does the work, in its own task; `batch` is in chunks."""

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
        """The reason why vectors cannot be made at this moment."""

    def lack(self) -> str:
        """Say which memories no meaning is compared with, and why; empty when it is with all that the model takes."""
        if self.problem is not None:
            return f"of what was stored last only words were compared: {self.problem}"
        if refused := len(self._refused):
            return f"of {refused} chunks only words were compared: the embeddings model does not take their text"
        return ""

    def retry_now(self) -> None:
        """End a pause after a failure: the model has just answered another request."""
        self._well.set()

    def wake(self) -> None:
        """End the wait for news: something was stored that is pending."""
        self._news.set()

    async def run(self) -> None:
        """Embed round after round until it is cancelled."""
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
        """Embed one batch; returns whether the round goes on. Refused points stay pending, and are passed over."""
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
    """Wait for the event, at most for this time."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _pause_after(error: CadreError, pause: float) -> float:
    """Return the seconds to wait: what the endpoint asks for, when that is longer."""
    asked: float | None = getattr(error, "retry_after", None)
    return pause if asked is None else max(pause, asked)


BATCH_POINTS = 64
"""Number of points that are stored together."""

_MAX_WAITING_JOBS = 64
"""Maximum number of memories that wait for their turn."""

ChunkVectors = tuple[Chunk, Vectors]


class _Job(NamedTuple):
    points: list[ChunkVectors]
    stored: asyncio.Future[None]


class Writer:
    """Writes to an index in batches. `run` does the work, in its own task."""

    def __init__(self, index: MemoryIndex) -> None:
        self._index = index
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue(_MAX_WAITING_JOBS)

    async def store(self, points: list[ChunkVectors]) -> None:
        """Store points; they are durable when this returns. Raises what the index raises for them."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._jobs.put(_Job(points, stored))
        await stored

    async def run(self) -> None:
        """Store batch after batch until it is cancelled."""
        while True:
            # While one batch is stored the next one gathers: under load they are full, else no caller waits.
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
