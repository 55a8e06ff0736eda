"""Vectors are added to all that wait for them but what the model refuses, however much that is."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from cadre.errors import ModelRefused
from cadre_memory.embedding.embedder import Fingerprint, WindowVectors
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.operations.writing import ChunkEmbedder, Sweeper
from harness.patience import until
from integration.memory_index_world import ALL, NOWHERE, fresh_index, memory, open_store, with_words

EAST = [1.0, 0.0, 0.0, 0.0]


class NoLongTexts:
    """A model that takes notes only."""

    fingerprint = Fingerprint(name="small", dim=4)

    async def query(self, text: str) -> list[float]:
        return EAST

    async def documents(self, texts: list[str]) -> list[WindowVectors]:
        if any(text.startswith("long") for text in texts):
            raise ModelRefused("the input is too long", status=413)
        return [[EAST] for _ in texts]

    async def close(self) -> None:
        pass


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[MemoryIndex]:
    async with open_store("sqlite", tmp_path) as store, fresh_index(store) as one:
        yield one


async def test_texts_that_the_model_refuses_keep_no_others_from_their_vectors(index: MemoryIndex) -> None:
    long = [with_words(memory(f"m{n}", f"long {n}", embed_state="pending")) for n in range(1001)]
    notes = [memory(f"note{n}", f"note {n}", embed_state="pending") for n in range(3)]
    # They are the last that the index comes to.
    last = [msgspec.structs.replace(chunk, id=str(UUID(int=2**128 - 1 - n))) for n, chunk in enumerate(notes)]
    await index.upsert(long)
    sweeper = Sweeper(index, ChunkEmbedder(NoLongTexts()), batch=128)
    sweeping = asyncio.create_task(sweeper.run())

    async def embedded() -> bool:
        hits = await index.search(sparse=None, dense=EAST, within=ALL, where=NOWHERE, limit=5)
        return {hit.chunk.id for hit in hits} == {chunk.id for chunk in last}

    try:
        await index.upsert([with_words(chunk) for chunk in last])
        sweeper.wake()
        await until(embedded)
    finally:
        sweeping.cancel()
    assert len((await index.pending(1000)).chunks) == 1000, "asked again by the next process"
    assert sweeper.problem is None
    assert "1001" in sweeper.lack(), sweeper.lack()
