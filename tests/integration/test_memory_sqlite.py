"""Tests of what only the store in a file must show: kills lose nothing, one owner, and the service's loop never
waits."""

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cadre_memory.bm25 import encode_query
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.sqlite_store import FILE, SqliteStore
from cadre_memory.index.vector_index import IndexRefused, IndexUnavailable, PointSelector, Query, Schema
from harness.patience import patience
from integration.memory_index_world import ALL, NOWHERE, SMALL, memory, names, of_user, point_id, with_words

WRITER = Path(__file__).with_name("memory_writer.py")

EAST = [1.0, 0.0, 0.0, 0.0]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path)
    yield store
    await store.close()


@pytest.fixture
async def index(store: SqliteStore) -> MemoryIndex:
    return await MemoryIndex.open(store, SMALL)


async def everything(index: MemoryIndex) -> set[str]:
    found: set[str] = set()
    after: str | None = None
    while True:
        page = await index.scroll(within=ALL, where=NOWHERE, limit=500, after=after)
        found |= names(page.chunks)
        after = page.next
        if after is None:
            return found


async def test_a_kill_in_the_middle_of_writes_loses_nothing_acknowledged(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for first in (0, 1_000_000, 2_000_000):
        writer = await asyncio.create_subprocess_exec(
            *(sys.executable, WRITER, tmp_path, str(first)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(WRITER.parents[1])},
        )
        assert writer.stdout is not None
        async with asyncio.timeout(patience()):
            told = [int(await writer.stdout.readline()) for _ in range(50)]
            writer.kill()
            told += [int(line) for line in (await writer.stdout.read()).split(b"\n")[:-1]]
            await writer.wait()
        acknowledged |= {f"{number}-{n}" for number in told for n in range(5)}
        store = await SqliteStore.open(tmp_path)
        index = await MemoryIndex.open(store, SMALL)
        there = await everything(index)
        assert there >= acknowledged
        # A batch is there whole or not at all.
        assert len(there) % 5 == 0
        found = await index.search(sparse=encode_query("tea"), dense=None, within=ALL, where=NOWHERE, limit=1000)
        assert len(found) == min(len(there), 1000)
        await store.close()
    assert len(acknowledged) >= 750


async def test_one_directory_has_one_owner(tmp_path: Path) -> None:
    """Another process is refused while the first one lives, and gets the directory once that was killed."""
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, WRITER, tmp_path, "0"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(WRITER.parents[1])},
    )
    assert writer.stdout is not None
    async with asyncio.timeout(patience()):
        await writer.stdout.readline()
        with pytest.raises(IndexRefused, match=f"process {writer.pid}:"):
            await SqliteStore.open(tmp_path, lock_seconds=0)
        waiting = asyncio.create_task(SqliteStore.open(tmp_path, lock_seconds=patience()))
        writer.kill()
        await writer.stdout.read()
        await writer.wait()
        store = await waiting
    assert await store.collections() == [SMALL.collection("mem")]
    await store.close()


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"of another program" * 100)
    for _ in range(2):  # the first refusal lets go of the directory
        with pytest.raises(IndexRefused, match=FILE):
            await SqliteStore.open(tmp_path, lock_seconds=0)


async def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IndexRefused):
        await SqliteStore.open(tmp_path / "file" / "memory")


async def test_what_was_closed_is_there_again(tmp_path: Path) -> None:
    for round in range(2):
        store = await SqliteStore.open(tmp_path)
        index = await MemoryIndex.open(store, SMALL)
        assert len(await everything(index)) == round
        await index.upsert([with_words(memory(f"m{round}", "tea"), [EAST])])
        await index.close()
        await index.close()
        with pytest.raises(IndexUnavailable, match="closed"):
            await index.count(within=ALL, where=NOWHERE)


async def test_a_write_that_fails_changes_nothing_and_the_next_one_works(
    store: SqliteStore, index: MemoryIndex, tmp_path: Path
) -> None:
    """Another program holds the file: nothing of the batch is stored or shown, and it is said to be temporary."""
    await index.upsert([with_words(memory("before", "tea"), [EAST])])
    await store._in_thread(lambda: store._file.execute("PRAGMA busy_timeout = 0").fetchone())
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(IndexUnavailable):
        await index.upsert([with_words(memory(f"m{n}", "tea"), [EAST]) for n in range(3)])
    assert await everything(index) == {"before"}
    with pytest.raises(IndexUnavailable):
        await index.delete(within=ALL, where=NOWHERE)
    assert await everything(index) == {"before"}
    other.close()
    await index.upsert([with_words(memory(f"m{n}", "tea"), [EAST]) for n in range(3)])
    assert await everything(index) == {"before", "m0", "m1", "m2"}


async def test_a_filter_is_on_each_leg_of_a_search(store: SqliteStore, index: MemoryIndex) -> None:
    """Many of another's are nearer: they would fill each leg, and leave nothing for anyone who asks."""
    theirs = [with_words(memory(f"his {n}", "tea", user="ben"), [EAST]) for n in range(60)]
    hers = with_words(memory("hers", "tea and much besides that is not to the point"), [[0.5, 1.0, 0.0, 0.0]])
    await index.upsert([*theirs, hers])
    selector = PointSelector(within=of_user("anna"))
    found = await store.search(index.own, Query(sparse=encode_query("tea"), dense=EAST, limit=5), selector)
    assert [one.payload["memory"] for one in found] == ["hers"]
    assert found[0].score == pytest.approx(1.0)


async def test_what_is_in_memory_is_what_is_in_the_file(store: SqliteStore, index: MemoryIndex) -> None:
    """Points come, get vectors, are replaced and go until most slots are empty: a fresh reading finds the same."""
    for round in range(6):
        points = [
            with_words(memory(f"{round}-{n}", f"tea {round} {n}", user=f"p{n % 3}", embed_state="pending"))
            for n in range(600)
        ]
        await index.upsert(points)
        await index.set_dense({chunk.id: [[1.0, float(n), 0.0, 0.0], EAST] for n, (chunk, _) in enumerate(points[::2])})
        await index.upsert([with_words(chunk, [[0.0, 1.0, 1.0, 0.0]]) for chunk, _ in points[1::2]])
        for person in ("p0", "p1") if round % 2 else ("p2",):
            await index.delete(within=of_user(person), where=NOWHERE)
    known = store._columns[index.own]
    assert not known.wasteful
    before = [await seen(index, person) for person in ("p0", "p1", "p2")]
    store._columns.clear()
    assert [await seen(index, person) for person in ("p0", "p1", "p2")] == before
    assert [len(hits) for hits, _, _ in before] == [0, 0, 200]
    orphans = "SELECT count(*) FROM words WHERE point NOT IN (SELECT number FROM points)"
    assert await store._in_thread(lambda: store._file.execute(orphans).fetchone()) == (0,)


async def seen(index: MemoryIndex, person: str) -> tuple[list[tuple[str, float]], set[str], int]:
    within = of_user(person)
    hits = await index.search(
        sparse=encode_query("tea"), dense=[0.5, 0.5, 0.1, 0.0], within=within, where=NOWHERE, limit=1000
    )
    page = await index.scroll(within=within, where=NOWHERE, limit=1000)
    scored = sorted((hit.chunk.memory, hit.score) for hit in hits)
    return scored, names(page.chunks), await index.count(within=within, where=NOWHERE)


async def test_the_services_loop_goes_on_while_the_store_works(tmp_path: Path) -> None:
    """Thousands of points are removed at once, with their words: anything that is asked meanwhile is answered after
    it."""
    store = await SqliteStore.open(tmp_path)
    index = await MemoryIndex.open(store, Schema(model="big", fingerprint="big", dim=256))
    vector = [0.5] * 256
    for start in range(0, 3000, 500):
        await index.upsert(
            [with_words(memory(f"m{n}", f"secret {n} " * 20), [vector]) for n in range(start, start + 500)]
        )
    gaps: list[float] = []
    loop = asyncio.get_running_loop()

    async def beat() -> None:
        while True:
            at = loop.time()
            await asyncio.sleep(0)
            gaps.append(loop.time() - at)

    began = loop.time()
    beating = asyncio.create_task(beat())
    removing = asyncio.create_task(store.delete(index.own, PointSelector(ids=[point_id(f"m{n}") for n in range(2000)])))
    asked = asyncio.create_task(index.count(within=ALL, where=NOWHERE))
    assert await removing == 2000
    took = loop.time() - began
    beating.cancel()
    assert await asked == 1000
    assert max(gaps) < took / 2, (took, max(gaps))
    await store.close()


async def test_what_was_removed_is_in_no_file(tmp_path: Path, store: SqliteStore, index: MemoryIndex) -> None:
    kept = [with_words(memory(f"m{n}", f"kept {n}"), [EAST]) for n in range(900)]
    secret = [with_words(memory(f"s{n}", "antidisestablishment" * 400, user="ben"), [EAST]) for n in range(20)]
    await index.upsert([*kept, *secret])
    assert files_with(tmp_path, b"antidisestablishment")
    assert await index.delete(within=of_user("ben"), where=NOWHERE) == 20
    assert not files_with(tmp_path, b"antidisestablishment")
    assert await index.count(within=ALL, where=NOWHERE) == 900
    await store.drop(index.own)
    assert not files_with(tmp_path, b"kept")


def files_with(folder: Path, text: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if text in file.read_bytes()]
