"""What only the embedded engine must show: kills lose nothing, one owner, and the owner's loop never waits."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cadre_memory.index.edge.child import EngineTiming
from cadre_memory.index.edge.store import EdgeStore
from cadre_memory.index.filters import PointSelector
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.schema import Schema
from cadre_memory.index.store import Point, Query
from cadre_memory.index.vector_index import IndexRefused, IndexUnavailable
from cadre_memory.text.bm25 import encode_query
from cadre_memory.text.sparse import SparseVector
from harness.patience import patience, until
from integration.memory_index_world import ALL, NOWHERE, SMALL, memory, names, of_user, point_id, with_words

WRITER = Path(__file__).with_name("memory_writer.py")
QUIET = EngineTiming(flush_seconds=3600, idle_seconds=3600)
"""Neither flushes nor tidies up by itself: what survives a kill is what the log holds."""

EAST = [1.0, 0.0, 0.0, 0.0]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EdgeStore]:
    store = await EdgeStore.open(tmp_path / "edge", timing=QUIET)
    yield store
    await store.close()


@pytest.fixture
async def index(store: EdgeStore) -> MemoryIndex:
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


async def test_killing_the_engine_loses_nothing_acknowledged(store: EdgeStore, index: MemoryIndex) -> None:
    acknowledged: set[str] = set()
    enough = asyncio.Event()

    async def write(writer: int) -> None:
        number = 0
        while not enough.is_set():
            batch = [memory(f"{writer}-{number}-{n}", f"tea {n}") for n in range(3)]
            await index.upsert([with_words(one, [EAST]) for one in batch])
            acknowledged.update(names(batch))
            number += 1

    async with asyncio.TaskGroup() as tasks:
        for writer in range(4):
            tasks.create_task(write(writer))
        for kill in range(3):
            before, pid = len(acknowledged), store.pid
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(patience()):
                while store.pid == pid or len(acknowledged) < before + 100:
                    await index.count(within=of_user("anna"), where=NOWHERE)
            if kill == 2:
                enough.set()
    assert await everything(index) >= acknowledged
    assert len(acknowledged) > 300


async def test_killing_the_owner_loses_nothing_acknowledged(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for first in (0, 1_000_000):
        writer = await asyncio.create_subprocess_exec(
            *(sys.executable, WRITER, tmp_path, str(first)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(WRITER.parents[1])},
        )
        assert writer.stdout is not None
        async with asyncio.timeout(patience()):
            child = int(await writer.stdout.readline())
            told = [int(await writer.stdout.readline()) for _ in range(50)]
            writer.kill()
            told += [int(line) for line in (await writer.stdout.read()).split(b"\n")[:-1]]
            await writer.wait()
        acknowledged |= {f"{number}-{n}" for number in told for n in range(5)}
        # The engine ends with its owner, so the next one may own the directory; it waits for that.
        store = await EdgeStore.open(tmp_path / "edge", timing=QUIET)
        index = await MemoryIndex.open(store, SMALL)
        assert not runs_the_engine(child)
        assert await everything(index) >= acknowledged
        await store.close()
    assert len(acknowledged) >= 500


async def test_one_directory_has_one_owner(tmp_path: Path, store: EdgeStore) -> None:
    with pytest.raises(IndexRefused, match=rf"in use by process {os.getpid()}: .*directory of its own"):
        await EdgeStore.open(tmp_path / "edge", timing=EngineTiming(lock_seconds=0))


async def test_a_damaged_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "edge" / "collections" / "mem__lexical__lexical__s1").mkdir(parents=True)
    with pytest.raises(IndexRefused, match="cannot be opened"):
        await EdgeStore.open(tmp_path / "edge", timing=QUIET)


async def test_what_was_closed_is_there_again(tmp_path: Path) -> None:
    for round in range(2):
        store = await EdgeStore.open(tmp_path / "edge", timing=QUIET)
        index = await MemoryIndex.open(store, SMALL)
        assert len(await everything(index)) == round
        await index.upsert([with_words(memory(f"m{round}", "tea"), [EAST])])
        await index.close()
        with pytest.raises(IndexUnavailable, match="closed"):
            await index.count(within=ALL, where=NOWHERE)


async def test_a_request_that_kills_the_engine_is_given_up(
    store: EdgeStore, index: MemoryIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process dies before it answers: that it was started again is no reason to try for ever."""
    living = store._living

    async def doomed() -> object:
        process = await living()
        process.kill()
        return process

    with monkeypatch.context() as patch:
        patch.setattr(store, "_living", doomed)
        with pytest.raises(IndexUnavailable, match="died 3 times"):
            await index.count(within=ALL, where=NOWHERE)
    assert await index.count(within=ALL, where=NOWHERE) == 0


async def test_points_that_the_engine_refused_appear_later_unless_checked_before(
    store: EdgeStore, index: MemoryIndex
) -> None:
    """Why everything is checked first: the engine logs a batch, fails somewhere in it, and repeats it at its start,
    where other points of it come through."""

    def raw(name: str, dense: list[float]) -> Point:
        return Point(
            point_id(name),
            {"hash": name, "embed_state": "done", "memory": name},
            SparseVector([], []),
            [dense],
        )

    for n in range(20):
        with pytest.raises(IndexUnavailable, match="the engine failed"):
            await store.upsert(index.own, [raw(f"a{n}", EAST), raw(f"wrong{n}", [1.0]), raw(f"c{n}", EAST)])
    before = await stored(store, index)
    os.kill(store.pid, signal.SIGKILL)
    after = await stored(store, index)
    assert after - before, "points that were not there have come"

    with pytest.raises(IndexRefused):
        await index.upsert(
            [with_words(memory("d", "tea"), [EAST]), with_words(memory("wrong", "tea"), [[1.0]])]
        )
    os.kill(store.pid, signal.SIGKILL)
    assert not {"d", "wrong"} & await stored(store, index)


async def stored(store: EdgeStore, index: MemoryIndex) -> set[str]:
    found = await store.scroll(index.own, PointSelector(), limit=1000)
    return {one.payload["memory"] for one in found.records}


async def test_a_filter_is_on_each_leg_of_a_search(store: EdgeStore, index: MemoryIndex) -> None:
    """Many of another's are nearer: they would fill each leg, and leave nothing for whoever asks."""
    theirs = [with_words(memory(f"his {n}", "tea", user="ben"), [EAST]) for n in range(60)]
    hers = with_words(memory("hers", "tea and much besides that is not to the point"), [[0.5, 1.0, 0.0, 0.0]])
    await index.upsert([*theirs, hers])
    selector = PointSelector(within=of_user("anna"))
    found = await store.search(index.own, Query(sparse=encode_query("tea"), dense=EAST, limit=5), selector)
    assert [one.payload["memory"] for one in found] == ["hers"]
    assert found[0].score == pytest.approx(1.0)


async def test_the_owners_loop_goes_on_while_the_engine_tidies_up(tmp_path: Path) -> None:
    """And all that is asked meanwhile is answered after it; the text of what was removed is gone from the pages."""
    big = Schema(model="big", fingerprint="big", dim=256)
    store = await EdgeStore.open(tmp_path / "edge", timing=QUIET)
    index = await MemoryIndex.open(store, big)
    vector = [0.5] * 256
    for start in range(0, 3000, 500):
        await index.upsert(
            [with_words(memory(f"m{n}", f"secret {n} " * 20), [vector]) for n in range(start, start + 500)]
        )
    for n in range(0, 3000, 500):
        ids = [point_id(f"m{n + one}") for one in range(200)]
        await store.delete(index.own, PointSelector(ids=ids))
    gaps: list[float] = []
    loop = asyncio.get_running_loop()

    async def beat() -> None:
        while True:
            at = loop.time()
            await asyncio.sleep(0.005)
            gaps.append(loop.time() - at)

    began = loop.time()
    beating = asyncio.create_task(beat())
    tidying = asyncio.create_task(store.vacuum())
    asked = asyncio.create_task(index.count(within=ALL, where=NOWHERE))
    await tidying
    took = loop.time() - began
    beating.cancel()
    assert await asked == 3000 - 6 * 200
    # A loop that waited for the engine would have one beat, as long as all of it.
    assert len(gaps) > 5, (took, gaps)
    assert max(gaps) < took / 2, (took, max(gaps))
    await store.close()


async def test_it_tidies_up_when_idle(tmp_path: Path) -> None:
    """What was removed can no more be read from the pages."""
    store = await EdgeStore.open(tmp_path / "edge", timing=EngineTiming(flush_seconds=1, idle_seconds=0.05))
    index = await MemoryIndex.open(store, SMALL)
    kept = [with_words(memory(f"m{n}", f"kept {n}"), [EAST]) for n in range(900)]
    secret = [with_words(memory(f"s{n}", "antidisestablishment", user="ben"), [EAST]) for n in range(200)]
    await index.upsert([*kept, *secret])
    assert pages_with(tmp_path, b"antidisestablishment")
    assert await index.delete(within=of_user("ben"), where=NOWHERE) == 200

    async def clean() -> bool:
        return not pages_with(tmp_path, b"antidisestablishment")

    await until(clean)
    assert await index.count(within=ALL, where=NOWHERE) == 900
    await store.close()


def pages_with(folder: Path, text: bytes) -> list[str]:
    """Outside the log, which is written over in time; files come and go meanwhile."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "wal"]
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                if text in Path(place, name).read_bytes():
                    found.append(name)
    return found


def runs_the_engine(pid: int) -> bool:
    try:
        return b"cadre_memory" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
