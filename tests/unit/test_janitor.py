"""Tests of when what is removed, in its own time: nothing is waited for in these tests."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cadre.adapters.nats.blobs import YOUNG_SECONDS
from cadre.adapters.nats.erasure import Belongings
from cadre.errors import BusUnavailable, Fenced
from cadre.journal import events as ev
from cadre.journal.entry import ArrivalRecord, Entry
from cadre.protocol.kept import KeptFile
from cadre.protocol.messages import (
    Erased,
    Lifecycle,
    Task,
)
from cadre.spec.agent import AgentSpec
from cadre_gateway.index.database.port import SqlQuery
from cadre_gateway.index.run_filter import RunFilter
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_record import EntryStatus
from cadre_gateway.retention import Janitor
from unit.inline_index import erased_at, new_index, take

DAY = 86400.0
SPEC = AgentSpec(name="boss", description="Leads.")
BLOB = "blob:" + "a" * 64


class Time:
    """ports.Clock whose hours pass when no one has anything left to do."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._ids = itertools.count()
        self.wakings = 0

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._ids), waking))
        await waking

    def spend(self, seconds: float) -> None:
        """Somebody is busy for so long."""
        self._now += seconds

    async def until(self, moment: float) -> None:
        while True:
            for _ in range(20):
                await asyncio.sleep(0)
            self._sleepers = [one for one in self._sleepers if not one[2].done()]
            heapq.heapify(self._sleepers)
            if not self._sleepers or self._sleepers[0][0] > moment:
                self._now = max(self._now, moment)
                return
            due, _, waking = heapq.heappop(self._sleepers)
            self._now = max(self._now, due)
            self.wakings += 1
            waking.set_result(None)


class Streams:
    """janitor.Erasure on lists: what lies where, and what was done when."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.seq = 100
        self.lifecycles: dict[str, tuple[int, Lifecycle]] = {}
        self.names: dict[str, set[str]] = {}
        """Blobs that each tree names; a tree that is not here has no messages."""
        self.blobs: dict[str, float] = {}
        """The time of each one's last write."""
        self.tasks: set[str] = set()
        self.elsewhere: set[str] = set()
        self.gone: dict[str, KeptFile] = {}
        self.purged: list[tuple[float, str]] = []
        self.costs = 0.0
        self.failures = 0
        self.swept: list[float] = []
        self.queues_swept: list[float] = []
        self.unsweepable = False

    async def lifecycle(self, tree: str) -> tuple[int, Lifecycle] | None:
        return self.lifecycles.get(tree)

    async def record(self, lifecycle: Lifecycle, fence: int) -> int:
        if self.failures:
            self.failures -= 1
            raise BusUnavailable("recording", "no server")
        known = self.lifecycles.get(lifecycle.tree)
        if (known[0] if known else 0) != fence:
            raise Fenced("somebody was first")
        self.seq += 1
        self.lifecycles[lifecycle.tree] = (self.seq, lifecycle)
        return self.seq

    async def forget_pushes(self, tree: str) -> None:
        pass

    async def leave_session(self, agent: str, session: str, user: str | None, run: str) -> None:
        pass

    async def belongings(self, tree: str, before: int) -> Belongings:
        return Belongings(self.names.get(tree, set()), set(), {1} if tree in self.names else set(), set())

    async def make_room(self, tree: str) -> bool:
        return False

    async def has_task(self, tree: str) -> bool:
        return tree in self.tasks

    async def awaited(self, besides: str) -> set[str]:
        return self.elsewhere

    async def gone_files(self) -> list[KeptFile]:
        return [*self.gone.values()]

    async def forget_file(self, file: KeptFile) -> None:
        del self.gone[file.id]

    async def drop_exchanges(self, tasks: Iterable[str]) -> None:
        raise AssertionError(f"no run here has agents elsewhere: {tasks}")

    async def drop_letters(self, tree: str, messages: set[int]) -> None:
        pass

    async def remove_blob(self, ref: str, unless_put_since: float | None) -> bool:
        if unless_put_since is not None and self.blobs.get(ref, -1.0) >= unless_put_since:
            return False
        self.blobs.pop(ref, None)
        return True

    async def sweep(self) -> None:
        self.swept.append(self._time.now())
        if self.unsweepable:
            raise BusUnavailable("sweeping", "no server")

    async def sweep_queues(self) -> None:
        self.queues_swept.append(self._time.now())

    async def purge(self, tree: str, before: int) -> None:
        self._time.spend(self.costs)
        self.names.pop(tree, None)
        self.purged.append((self._time.now(), tree))


class House:
    """A janitor, and what he looks after."""

    def __init__(self, time: Time, streams: Streams, keep: float, index: RunIndex) -> None:
        self.index = index
        self.streams = streams
        self.time = time
        self.in_use: set[str] = set()
        """Blobs that live services name."""
        self.lagging: list[Callable[[], Awaitable[object]]] = []
        """Entries in the streams, and will be read when somebody waits for that."""
        self.janitor = Janitor(
            self.index,
            streams,
            time,
            keep=keep,
            read_on=self._read_on,
            in_use=lambda: self.in_use,
            sweep_queues=streams.sweep_queues,
        )
        self._seq = 0

    async def _read_on(self) -> None:
        while self.lagging:
            await self.lagging.pop(0)()

    async def read(
        self, run: str, *events: ev.AnyEvent, n: int = 1, refs: set[str] | None = None, wake: bool = True
    ) -> EntryStatus:
        """As the tail hands it on."""
        self._seq += 1
        tree = run.partition("_")[0]
        entry = Entry(
            arrived=ArrivalRecord("Task"),
            run=run,
            agent="boss",
            n=n,
            cause="c",
            at=self.time.now(),
            events=list(events),
        )
        status = await take(self.index, self._seq, entry, refs or set(), self.time.now())
        if status is EntryStatus.LATE:
            self.index.removals.late_trees[tree] = self._seq
        if wake:
            self.janitor.wake()
        return status

    async def file(self, tree: str, refs: set[str]) -> None:
        self._seq += 1
        async with self.index.changing(tree) as found:
            found.record.add_file(self._seq, refs, at=0.0)

    async def is_erased(self, tree: str) -> bool:
        return await erased_at(self.index, tree) is not None

    async def ended(self, run: str, refs: set[str] | None = None, wake: bool = True) -> None:
        task = Task(id=f"{run}:task", tree=run, run=run, at=self.time.now(), agent="boss", task="x")
        self.streams.names.setdefault(run, set()).update(refs or set())
        await self.read(
            run,
            ev.RunAccepted(task=task, spec=SPEC, decided_by="tool_calling"),
            ev.RunFinished(state="success"),
            refs=refs,
            wake=wake,
        )


@asynccontextmanager
async def at_work(*houses: House) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(house.janitor.run()) for house in houses]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def house() -> House:
    time = Time()
    return House(time, Streams(time), keep=30 * DAY, index=await new_index())


async def test_a_run_goes_when_its_time_is_over_and_not_before(house: House) -> None:
    async with at_work(house):
        await house.ended("a")
        await house.time.until(30 * DAY - 1)
        assert await house.index.get("a", "a") is not None
        await house.time.until(30 * DAY)
        assert await house.index.get("a", "a") is None
        assert house.streams.purged == [(30 * DAY, "a")]
        assert isinstance(house.streams.lifecycles["a"][1], Erased)
        assert await house.index.last_of("a") == 0


async def test_he_sleeps_until_something_is_due(house: House) -> None:
    async with at_work(house):
        await house.ended("a")
        await house.time.until(29 * DAY)
        assert house.time.wakings <= 2 * (29 * 24 + 1), "once an hour, to sweep, and to rest from it"


@pytest.mark.parametrize("unsweepable", [False, True])
async def test_he_sweeps_when_he_comes_and_every_hour(house: House, unsweepable: bool) -> None:
    house.streams.unsweepable = unsweepable
    async with at_work(house):
        await house.ended("a")
        await house.time.until(3 * 3600.0)
        assert house.streams.swept == [0.0, 3600.0, 7200.0, 10800.0]
        assert house.streams.queues_swept == house.streams.swept
        await house.time.until(30 * DAY + 3600)
        assert [tree for _, tree in house.streams.purged] == ["a"], "it keeps nothing else waiting"


async def test_for_ever_is_for_ever() -> None:
    time = Time()
    house = House(time, Streams(time), keep=0.0, index=await new_index())
    async with at_work(house):
        await house.ended("a")
        await time.until(1000 * DAY)
        assert await house.index.get("a", "a") is not None


async def test_the_streams_are_left_in_peace_most_of_the_time(house: House) -> None:
    house.streams.costs = 1.0
    async with at_work(house):
        for number in range(5):
            await house.ended(f"t{number}")
        await house.time.until(31 * DAY)
    times = [at for at, _ in house.streams.purged]
    assert len(times) == 5
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(gap >= 1.0 * 20 for gap in gaps)


async def test_slow_streams_do_not_keep_what_is_due_waiting_for_minutes(house: House) -> None:
    house.streams.costs = 600.0
    async with at_work(house):
        for number in range(3):
            await house.ended(f"t{number}")
        await house.time.until(31 * DAY)
    assert [at - 30 * DAY for at, _ in house.streams.purged] == [600.0, 1230.0, 1860.0]


async def test_a_run_that_ends_while_the_index_is_read_is_not_missed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    read = house.index.read

    async def reads_before_it_ends(query: SqlQuery) -> Sequence[tuple[Any, ...]]:
        nonlocal reads
        found = await read(query)
        reads += 1
        if reads == 4:  # the second reading of the ended runs: the first was followed by the sweep
            await house.ended("a", wake=False)
            house.janitor.note_end(house.time.now())
        return found

    house.janitor._keep = 60.0
    monkeypatch.setattr(house.index, "read", reads_before_it_ends)
    async with at_work(house):
        await house.time.until(120.0)
    assert house.streams.purged == [(60.0, "a")]


async def test_a_bus_that_fails_is_tried_again(house: House) -> None:
    house.streams.failures = 3
    async with at_work(house):
        await house.ended("a")
        await house.time.until(30 * DAY + 120)
        assert [tree for _, tree in house.streams.purged] == ["a"]


async def test_two_gateways_record_one_erasure() -> None:
    time = Time()
    streams = Streams(time)
    houses = [House(time, streams, keep=DAY, index=await new_index()) for _ in range(2)]
    async with at_work(*houses):
        for one in houses:
            await one.ended("a")
        await time.until(2 * DAY)
    assert streams.seq == 101
    assert all([await one.is_erased("a") and not one.index.removals.pending_erasures for one in houses])


async def test_what_another_began_is_ended(house: House) -> None:
    house.streams.names["a"] = {BLOB}
    house.streams.blobs[BLOB] = -2 * YOUNG_SECONDS
    async with at_work(house):
        await house.janitor.note_erasure(7, Erased(id="a:erased", tree="a", run="a", at=0.0))
        await house.time.until(5.0)
        assert house.streams.purged == [], "whoever wrote the record is at it"
        await house.time.until(10.0)
        assert [tree for _, tree in house.streams.purged] == ["a"]
        assert house.streams.blobs == {}


@pytest.mark.parametrize(
    ("named", "waiting", "stays"), [(False, False, False), (True, False, True), (False, True, True)]
)
async def test_a_blob_goes_unless_somebody_else_names_it(house: House, named: bool, waiting: bool, stays: bool) -> None:
    house.streams.blobs[BLOB] = 0.0
    house.streams.elsewhere = {BLOB} if waiting else set()
    async with at_work(house):
        await house.ended("a", {BLOB})
        if named:
            await house.read("b", ev.CancelRequested(), refs={BLOB})
        await house.time.until(31 * DAY)
        assert await house.is_erased("a")
        assert (BLOB in house.streams.blobs) is stays


async def test_a_blob_stays_whose_new_name_was_not_read_yet(house: House) -> None:
    house.streams.blobs[BLOB] = 0.0
    await house.ended("a", {BLOB})
    house.lagging.append(lambda: house.file("b", {BLOB}))
    await house.janitor.erase("a")
    assert await house.is_erased("a")
    assert BLOB in house.streams.blobs


async def test_a_young_blob_goes_an_hour_later(house: House) -> None:
    async with at_work(house):
        await house.ended("a", {BLOB})
        await house.time.until(30 * DAY - 60)
        house.streams.blobs[BLOB] = house.time.now()
        await house.time.until(30 * DAY + 60)
        assert await house.is_erased("a")
        assert BLOB in house.streams.blobs
        await house.time.until(30 * DAY + YOUNG_SECONDS + 60)
        assert house.streams.blobs == {}
        assert house.index.removals.postponed_blobs == {}


async def test_what_is_erased_on_demand_goes_with_its_young_blobs(house: House) -> None:
    house.streams.blobs[BLOB] = 0.0
    await house.ended("a", {BLOB})
    await house.janitor.erase("a")
    assert house.streams.blobs == {}
    assert await house.index.get("a", "a") is None


async def test_what_a_live_service_names_goes_once_it_is_gone(house: House) -> None:
    house.streams.blobs[BLOB], house.in_use = -2 * YOUNG_SECONDS, {BLOB}
    async with at_work(house):
        await house.ended("a", {BLOB})
        await house.janitor.erase("a")
        await house.time.until(3 * YOUNG_SECONDS)
        assert BLOB in house.streams.blobs
        house.in_use = set()
        await house.time.until(5 * YOUNG_SECONDS)
        assert house.streams.blobs == {}


async def test_what_came_late_is_removed_unless_a_task_waits(house: House) -> None:
    ignored = ev.RecordIgnored(kind="ToolResult", code="not-begun")
    house.streams.tasks = {"b"}
    house.streams.names = {"a": set(), "b": set()}
    async with at_work(house):
        assert await house.read("a", ignored) is EntryStatus.LATE
        assert await house.read("b", ignored) is EntryStatus.LATE
        await house.time.until(10.0)
    assert [tree for _, tree in house.streams.purged] == ["a"]
    assert house.index.removals.late_trees == {}
    assert (await house.index.list(RunFilter()))[0] == []


async def test_files_of_a_run_that_never_began_go_after_an_hour(house: House) -> None:
    streams = house.streams
    async with at_work(house):
        for tree in ("left", "waits"):
            streams.names[tree] = {BLOB} if tree == "left" else set()
            await house.file(tree, streams.names[tree])
        streams.blobs[BLOB] = -YOUNG_SECONDS
        streams.tasks.add("waits")
        house.janitor.wake()
        await house.time.until(3500.0)
        assert streams.purged == []
        await house.time.until(4000.0)
    assert [tree for _, tree in streams.purged] == ["left"]
    assert streams.blobs == {}
    unstarted = await house.index.read(SqlQuery("SELECT tree FROM trees WHERE unstarted_at IS NOT NULL"))
    assert unstarted == []
