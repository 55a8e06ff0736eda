"""A process that stores memories in the embedded index as fast as it can, and prints what was acknowledged."""

import asyncio
import itertools
import sys
from pathlib import Path

from cadre_memory.index.memory_index import MemoryIndex
from integration.memory_index_world import SMALL, memory, open_store, with_words

BATCH = 5


async def write(folder: Path, first: int) -> None:
    """Until it is killed."""
    async with open_store("sqlite", folder) as store:
        index = await MemoryIndex.open(store, SMALL)
        for number in itertools.count(first):
            batch = [memory(f"{number}-{n}", f"tea {number} {n}") for n in range(BATCH)]
            await index.upsert([with_words(one, [[1.0, 0.0, float(number), 1.0]]) for one in batch])
            print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2])))
