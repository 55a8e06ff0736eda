"""Brings all memories to the model that this process has, and says so for as long as that takes."""

import asyncio
import logging

from cadre.errors import CadreError
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.operations.chunk_embedder import ChunkEmbedder
from cadre_memory.operations.migration import migrate

log = logging.getLogger("cadre.memory")

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0

_LOOK_EVERY_SECONDS = 30.0


class Reembedder:
    """Migrates memories to this process's model. `run` does the work, in a task of its own: once, at the start.

    Afterwards it only looks whether a replica with another model has moved the memories away: two that are
    configured differently would move them to and fro for ever.
    """

    def __init__(self, index: MemoryIndex, embedder: ChunkEmbedder | None) -> None:
        self._index = index
        self._embedder = embedder
        self.problem: str | None = "starting"
        """Why this process's vectors do not compare with those that are stored; None when they do."""

    async def run(self) -> None:
        """Migrates, however often that fails, and watches then until it is cancelled."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._move()
                break
            except CadreError as error:
                self.problem = f"memories are not embedded with this model yet: {error}"
                log.warning("%s; going on in %g s", self.problem, pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        while True:
            self.problem = await self._elsewhere()
            await asyncio.sleep(_LOOK_EVERY_SECONDS)

    async def _move(self) -> None:
        if await self._index.live() != self._index.own:
            self.problem = "memories are being embedded anew for another model"
        # Vectors are dear: where this process has none, those that others made are left where they are.
        await migrate(
            self._index,
            self._embedder.embed if self._embedder is not None else None,
            keep=self._embedder is None,
        )
        self.problem = None

    async def _elsewhere(self) -> str | None:
        try:
            if await self._index.live() != self._index.own:
                return "another process has moved the memories to its own model: configure both alike"
        except CadreError as error:
            log.warning("which model the memories have is not known at this moment: %s", error)
        return None
