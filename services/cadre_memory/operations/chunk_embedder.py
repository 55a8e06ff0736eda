"""Vectors of chunks, whatever lengths of text the model takes: a chunk that is too long is embedded in parts."""

import logging

from cadre.errors import ModelRefused
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters
from cadre_memory.embedding.embedder import Embedder, WindowVectors
from cadre_memory.index.vector_index import Chunk

log = logging.getLogger("cadre.memory")

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
        """Returns the vectors of each chunk; none for one whose text the model will not take, however short.

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
        """The vectors of a refused text's parts; none when a part of it is refused however short it is."""
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
        self._meters.record(
            names.MEMORY_REFUSED_CHUNKS, 1, {names.OUTCOME: "parts" if windows else "words_only"}
        )
        if not windows:
            log.warning("chunk %s is found by its words only: %s", chunk.id, error)
            return
        # Where the model takes little this is so for most chunks.
        level = logging.DEBUG if self._has_told else logging.WARNING
        self._has_told = True
        log.log(level, "chunk %s is embedded in %d parts: %s", chunk.id, len(windows), error)


def _halves(text: str) -> list[str]:
    """The text cut in two where a word ends; nothing for one that is too short for that."""
    if len(text) < _SHORTEST_CHARS:
        return []
    middle = len(text) // 2
    cut = text.find(" ", middle, middle + _SHORTEST_CHARS // 4)
    cut = cut if cut > 0 else middle
    return [part for part in (text[:cut], text[cut:]) if part.strip()]
