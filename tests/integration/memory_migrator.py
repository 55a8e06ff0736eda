"""A process that moves memories to the other model, and dies in the middle when asked how far to come."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import Chunk
from cadre_memory.operations.reembed import migrate
from integration.memory_index_world import OTHER, open_store


async def main(folder: Path, most: int) -> None:
    """Kills itself when more than `most` have been embedded."""
    embedded = 0

    async def embed(chunks: list[Chunk]) -> list[list[list[float]]]:
        nonlocal embedded
        embedded += len(chunks)
        if embedded > most:
            os.kill(os.getpid(), signal.SIGKILL)
        return [[[1.0, 2.0, 3.0]] for _ in chunks]

    async with open_store("sqlite", folder) as store:
        moved = await migrate(await MemoryIndex.open(store, OTHER), embed)
        print(moved.copied if moved else 0, embedded)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
