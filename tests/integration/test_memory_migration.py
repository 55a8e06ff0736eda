"""Another model: memories move to its collection under live traffic, and no one misses one on the way."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cadre_memory.bm25 import encode_query
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import Chunk, IndexUnavailable, PointSelector, Schema, Store, Where
from cadre_memory.operations.reembed import BATCH_CHUNKS, migrate
from harness.patience import patience
from integration.memory_index_world import (
    ALL,
    ENGINES,
    NOWHERE,
    OTHER,
    SMALL,
    WORDS_ONLY,
    fresh_index,
    memory,
    names,
    of_user,
    open_store,
    with_words,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIGRATOR = Path(__file__).with_name("memory_migrator.py")
EAST, FIRST = [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0]


@pytest_asyncio.fixture(params=ENGINES, scope="module", loop_scope="module")
async def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    async with open_store(request.param, tmp_path_factory.mktemp("memory")) as store:
        yield store


@pytest_asyncio.fixture(loop_scope="module")
async def old(store: Store) -> AsyncIterator[MemoryIndex]:
    async with fresh_index(store, SMALL) as index:
        yield index


async def open_other(old: MemoryIndex, own: Schema = OTHER) -> MemoryIndex:
    """Return what a replica with another model has, on the same store."""
    return await MemoryIndex.open(old.store, own, prefix=old.prefix)


async def embed(chunks: list[Chunk]) -> list[list[list[float]]]:
    return [[FIRST] for _ in chunks]


async def put(index: MemoryIndex, *named: str, dense: list[float] | None = None) -> None:
    chunks = [memory(name, f"tea {name}", embed_state="done" if dense else "pending") for name in named]
    await index.upsert([with_words(one, [dense] if dense else None) for one in chunks])


async def remove(index: MemoryIndex, name: str) -> int:
    return await index.delete(within=ALL, where=Where(memory=name))


async def seen(index: MemoryIndex) -> set[str]:
    """By search and by reading all; they must agree."""
    hits = await index.search(sparse=encode_query("tea"), dense=None, within=ALL, where=NOWHERE, limit=500)
    page = await index.scroll(within=ALL, where=NOWHERE, limit=500)
    assert names([hit.chunk for hit in hits]) == names(page.chunks)
    return names(page.chunks)


async def test_memories_move_with_new_vectors(old: MemoryIndex) -> None:
    await put(old, *[f"m{n}" for n in range(70)], dense=EAST)
    new = await open_other(old)
    assert (await new.status())[1:] == (old.own, 70, False, False)
    moved = await migrate(new, embed)
    assert moved == (old.own, new.own, 70, 0)
    assert (await new.status())[1:] == (new.own, 70, True, False)
    hits = await new.search(sparse=None, dense=FIRST, within=ALL, where=NOWHERE, limit=100)
    assert len(hits) == 70
    assert {hit.chunk.embed_state for hit in hits} == {"done"}
    assert old.own not in await old.store.collections()
    assert await migrate(new, embed) is None


async def test_before_the_move_a_new_model_reads_all_by_words(old: MemoryIndex) -> None:
    await put(old, "m1", dense=EAST)
    new = await open_other(old)
    assert await seen(new) == {"m1"}
    hits = await new.search(sparse=encode_query("tea"), dense=FIRST, within=of_user("anna"), where=NOWHERE, limit=5)
    assert names([hit.chunk for hit in hits]) == {"m1"}
    assert await new.search(sparse=None, dense=FIRST, within=ALL, where=NOWHERE, limit=5) == []
    await put(new, "m2", dense=FIRST)
    assert await seen(old) == {"m1", "m2"}
    # The replicas that know the old model give it its vectors there.
    assert names((await old.pending(5)).chunks) == {"m2"}
    assert (await new.pending(5)).chunks == []


async def test_writes_and_deletes_in_between_reach_both(old: MemoryIndex) -> None:
    """At every batch that is embedded: one memory comes by the old replica and one by the new; of those that were
    there one is deleted that was copied long ago, one that is just being copied, and one that is not copied yet."""
    there = [f"m{n:03}" for n in range(150)]
    await put(old, *there, dense=EAST)
    new = await open_other(old)
    expected = set(there)
    done: set[str] = set()

    async def embed_in_traffic(chunks: list[Chunk]) -> list[list[list[float]]]:
        batch = names(chunks)
        later = sorted(expected - done - batch)
        victims = [min(one) for one in (done & expected, batch & expected) if one] + later[:1]
        for number, victim in enumerate(victims):
            assert await remove(old if number % 2 else new, victim) == 1
            expected.discard(victim)
        fresh = len(expected)
        await put(old, f"old {fresh}", dense=EAST)
        await put(new, f"new {fresh}", dense=FIRST)
        expected.update({f"old {fresh}", f"new {fresh}"})
        done.update(batch)
        for reader in (old, new):
            assert await seen(reader) == expected
        return [[FIRST] for _ in chunks]

    moved = await migrate(new, embed_in_traffic)
    assert moved is not None
    assert moved.copied >= 120
    assert moved.overtaken >= 4, "those deleted while they were copied"
    for reader in (old, new):
        assert await seen(reader) == expected
    # What the old replica stored has words only, and waits for those who know the new model.
    waiting = (await new.pending(100)).chunks
    assert {one.memory for one in waiting} <= {name for name in expected if name.startswith("old")}
    await new.set_dense({one.id: [FIRST] for one in waiting})
    hits = await new.search(sparse=None, dense=FIRST, within=ALL, where=NOWHERE, limit=500)
    assert names([hit.chunk for hit in hits]) == expected


async def test_readers_and_writers_run_all_the_way_through(old: MemoryIndex) -> None:
    """No pause, no gap: anything that was acknowledged is seen at every moment, before, at and after the switch."""
    await put(old, *[f"m{n}" for n in range(100)], dense=EAST)
    new = await open_other(old)
    acknowledged = {f"m{n}" for n in range(100)}
    switched, enough = asyncio.Event(), asyncio.Event()
    reads = 0

    async def write(index: MemoryIndex, whose: str, dense: list[float]) -> None:
        number = since = 0
        while not enough.is_set():
            name = f"{whose} {number}"
            await put(index, name, dense=dense)
            acknowledged.add(name)
            number += 1
            since += switched.is_set()
            if since == 10:
                enough.set()
            await asyncio.sleep(0)

    async def read(index: MemoryIndex) -> None:
        nonlocal reads
        while not enough.is_set():
            wanted = set(acknowledged)
            page = await index.scroll(within=ALL, where=NOWHERE, limit=1000)
            assert names(page.chunks) >= wanted
            reads += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write(old, "old", EAST))
        tasks.create_task(write(new, "new", FIRST))
        tasks.create_task(read(old))
        tasks.create_task(read(new))
        await migrate(new, embed)
        switched.set()
    assert reads > 5
    assert names((await new.scroll(within=ALL, where=NOWHERE, limit=1000)).chunks) >= acknowledged


async def test_an_endpoint_that_fails_leaves_all_as_it_was(old: MemoryIndex) -> None:
    await put(old, *[f"m{n}" for n in range(BATCH_CHUNKS + 1)], dense=EAST)
    new = await open_other(old)
    calls = 0

    async def failing(chunks: list[Chunk]) -> list[list[list[float]]]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise IndexUnavailable("the endpoint is gone")
        return [[FIRST] for _ in chunks]

    with pytest.raises(IndexUnavailable, match="endpoint"):
        await migrate(new, failing)
    assert (await new.status())[1:] == (old.own, BATCH_CHUNKS + 1, False, True)
    assert len(await seen(new)) == BATCH_CHUNKS + 1
    moved = await migrate(new, embed)
    assert moved is not None
    assert moved.copied == 1, "the others had been copied"


async def test_a_kept_collection_can_be_gone_back_to(old: MemoryIndex) -> None:
    await put(old, "stays", "goes", dense=EAST)
    new = await open_other(old)
    await migrate(new, embed, keep=True)
    assert await remove(new, "goes") == 1
    assert await old.store.count(old.own, PointSelector()) == 1, "a delete reaches what was kept too"
    await put(new, "came", dense=FIRST)

    async def embed_again(chunks: list[Chunk]) -> list[list[list[float]]]:
        return [[EAST] for _ in chunks]

    back = await migrate(await open_other(new, SMALL), embed_again)
    assert back is not None
    assert back.copied == 1
    assert await seen(old) == {"stays", "came"}
    assert len(await old.search(sparse=None, dense=EAST, within=ALL, where=NOWHERE, limit=5)) == 2


async def test_to_words_only_and_back(old: MemoryIndex) -> None:
    await put(old, "m1", dense=EAST)
    words = await open_other(old, WORDS_ONLY)
    await migrate(words, None)
    [one] = (await words.scroll(within=ALL, where=NOWHERE, limit=5)).chunks
    assert one.embed_state == "lexical"
    assert await seen(words) == {"m1"}
    await migrate(await open_other(words), embed)
    assert await seen(words) == {"m1"}


async def test_a_third_model_takes_over_from_a_move_that_was_given_up(old: MemoryIndex) -> None:
    await put(old, *[f"m{n}" for n in range(BATCH_CHUNKS + 1)], dense=EAST)
    given_up = await open_other(old)

    async def failing(chunks: list[Chunk]) -> list[list[list[float]]]:
        if len(chunks) < BATCH_CHUNKS:
            raise IndexUnavailable("the endpoint is gone")
        return [[FIRST] for _ in chunks]

    with pytest.raises(IndexUnavailable):
        await migrate(given_up, failing)
    third = await open_other(old, Schema(model="third", fingerprint="third", dim=3))
    moved = await migrate(third, embed)
    assert moved is not None
    assert (moved.copied, len(await seen(third))) == (BATCH_CHUNKS + 1, BATCH_CHUNKS + 1)
    names_now = [one for one in await old.store.collections() if one.startswith(old.prefix)]
    assert names_now == [third.own]


async def test_a_killed_move_goes_on_where_it_was(tmp_path: Path) -> None:
    """The process, and the engine's with it, killed in the middle; meanwhile one memory comes and one goes."""
    async with open_store("sqlite", tmp_path) as store:
        await put(await MemoryIndex.open(store, SMALL), *[f"m{n}" for n in range(4 * BATCH_CHUNKS)], dense=EAST)
    killed = await run_migrator(tmp_path, most=2 * BATCH_CHUNKS)
    assert killed == (-9, b"")
    async with open_store("sqlite", tmp_path) as store:
        index = await MemoryIndex.open(store, OTHER)
        assert (await index.status()).moving
        assert len(await seen(index)) == 4 * BATCH_CHUNKS
        assert await remove(index, "m0") == 1
        await put(index, "later", dense=FIRST)
    code, told = await run_migrator(tmp_path, most=10**6)
    assert code == 0
    copied, embedded = map(int, told.split())
    assert copied == embedded <= 2 * BATCH_CHUNKS, "what had been copied is not embedded again"
    async with open_store("sqlite", tmp_path) as store:
        index = await MemoryIndex.open(store, OTHER)
        condition = await index.status()
        assert (condition.collection, condition.dense, condition.moving) == (index.own, True, False)
        assert await seen(index) == {f"m{n}" for n in range(1, 4 * BATCH_CHUNKS)} | {"later"}
        hits = await index.search(sparse=None, dense=[1.0, 2.0, 3.0], within=ALL, where=NOWHERE, limit=500)
        assert len(hits) == 4 * BATCH_CHUNKS


async def run_migrator(folder: Path, most: int) -> tuple[int | None, bytes]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, MIGRATOR, folder, str(most)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(MIGRATOR.parents[1])},
    )
    async with asyncio.timeout(patience()):
        told, _ = await process.communicate()
    return process.returncode, told
