"""Quarantine over a store in memory: which message is poison, which is not, and what a crash leaves behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import cadre.delivery.quarantine
from cadre.delivery.codec import decode, encode
from cadre.delivery.quarantine import (
    MAX_CRASHES_ALONE,
    MAX_FAILURES,
    MAX_LATE_CRASHES,
    OBSERVATION_SECONDS,
    SUSPECT_AFTER_DELIVERIES,
    Overdue,
    Quarantine,
)
from cadre.errors import BusUnavailable, Fenced
from cadre.ports import QuarantineRecord
from cadre.protocol.topology import Topology

SUSPECT = SUSPECT_AFTER_DELIVERIES + 1


class MemoryQuarantine:
    """ports.QuarantineStore"""

    def __init__(self) -> None:
        self.held: dict[int, tuple[QuarantineRecord, int]] = {}
        self.reads = 0
        self.failures = 0
        self._count = 0

    async def read(self, tree: str, seq: int) -> tuple[QuarantineRecord, int] | None:
        self.reads += 1
        if self.failures:
            self.failures -= 1
            raise BusUnavailable("reading", "down")
        return self.held.get(seq)

    async def write(self, tree: str, record: QuarantineRecord, fence: int) -> int:
        await asyncio.sleep(0)
        if (self.held[record.seq][1] if record.seq in self.held else 0) != fence:
            raise Fenced(str(record.seq))
        self._count += 1
        self.held[record.seq] = (record, self._count)
        return self._count

    async def clear(self, tree: str, seq: int) -> None:
        self.held.pop(seq, None)


class StillClock:
    """ports.Clock that stands still until asked otherwise."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self._sleepers.append((self._now + seconds, event))
        await event.wait()

    async def advance(self, seconds: float) -> None:
        self._now += seconds
        for due, event in self._sleepers:
            if due <= self._now:
                event.set()
        await settle()


class Letter:
    """ports.Delivery as far as a quarantine looks at it."""

    subject = "cadre.in.0.boss.gateway.t.t"
    address = Topology.address(subject)
    data = b""
    retried = False

    def __init__(self, seq: int, deliveries: int = SUSPECT) -> None:
        self.seq = self.origin = seq
        self.deliveries = deliveries
        self.handed_back: list[float] = []

    async def ack(self) -> None: ...

    async def nak(self, delay: float = 0.0) -> None:
        self.handed_back.append(delay)

    async def term(self, reason: str) -> None: ...


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


class World:
    """Processes that die: what they had in hand simply goes on hanging, and another begins on the same store."""

    def __init__(self) -> None:
        self.store = MemoryQuarantine()
        self.begun: list[int] = []
        self._hanging: list[asyncio.Task[str | None]] = []
        self.clock = StillClock()
        self.quarantine = Quarantine(self.store, self.clock)

    async def die(self) -> None:
        """Anything that runs now never gets on; the next process is there."""
        await settle()
        self.clock = StillClock()
        self.quarantine = Quarantine(self.store, self.clock)
        self.begun = []

    def give(
        self, seq: int, deliveries: int = SUSPECT, handle: Callable[[], Awaitable[None]] | None = None
    ) -> asyncio.Task[str | None]:
        async def hang() -> None:
            self.begun.append(seq)
            await asyncio.Event().wait()

        task = asyncio.create_task(self.quarantine.attempt(Letter(seq, deliveries), handle or hang))
        self._hanging.append(task)
        return task

    async def bury(self) -> None:
        for task in self._hanging:
            task.cancel()
        await asyncio.gather(*self._hanging, return_exceptions=True)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    one = World()
    yield one
    await one.bury()


def test_records_of_earlier_versions_are_read() -> None:
    record = QuarantineRecord(seq=7, in_group=True, attempts_alone=1, late_crashes=2, failures=3)
    stored = b'{"type":"trial","v":1,"seq":7,"together":true,"alone":1,"late":2,"raised":3}'
    assert encode(record) == stored
    assert decode(stored, QuarantineRecord) == record


async def well() -> None:
    """A handling that comes to its end."""


async def test_nothing_is_written_for_what_did_not_come_back_often(world: World) -> None:
    for deliveries in range(1, SUSPECT_AFTER_DELIVERIES + 1):
        assert await world.give(1, deliveries, well) is None
    assert world.store.reads == 0


async def test_an_innocent_may_come_back_for_ever(world: World) -> None:
    """Rolling restarts: handed back in order, its mark goes each time."""
    for deliveries in range(SUSPECT, SUSPECT + 40):
        task = world.give(1, deliveries)
        await settle()
        assert world.store.held[1][0].in_group
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert world.store.held == {}
    assert await world.give(1, 99, well) is None


async def test_a_killer_is_condemned_and_its_neighbours_live(world: World) -> None:
    """Twenty in hand: one kills its process as soon as it is handled, the others take a minute."""
    killer = 7
    left = set(range(20))
    verdicts: dict[int, str | None] = {}
    deaths = 0

    async def takes_a_minute() -> None:
        await world.clock.sleep(60.0)

    while left:
        killed = asyncio.Event()

        async def kills(killed: asyncio.Event = killed) -> None:
            killed.set()
            await asyncio.Event().wait()

        tasks = {seq: world.give(seq, SUSPECT + deaths, kills if seq == killer else takes_a_minute) for seq in left}
        for _ in range(100):
            await settle()
            if killed.is_set() or all(task.done() for task in tasks.values()):
                break
            await world.clock.advance(OBSERVATION_SECONDS)
        verdicts |= {seq: task.result() for seq, task in tasks.items() if task.done()}
        left -= set(verdicts)
        if killed.is_set():
            deaths += 1
            await world.die()
    assert deaths == 1 + MAX_CRASHES_ALONE, "together once, then alone"
    why = f"{MAX_CRASHES_ALONE} processes died while they handled it alone"
    assert verdicts == {seq: why if seq == killer else None for seq in range(20)}


async def test_who_came_back_waits_while_another_is_tried_alone(world: World) -> None:
    world.give(1)
    await world.die()
    world.give(1)
    await settle()
    assert world.begun == [1]
    world.give(2, deliveries=2)
    world.give(3, deliveries=1)
    await settle()
    assert world.begun == [1, 3], "a first delivery has killed nobody yet"
    await world.clock.advance(OBSERVATION_SECONDS)
    assert world.begun == [1, 3, 2]


async def test_who_waits_too_long_for_its_trial_gives_its_place_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cadre.delivery.quarantine, "OBSERVATION_SECONDS", 0.05)
    world.give(1)
    world.give(2)
    await world.die()
    world.give(1)
    await settle()
    waits = Letter(2)
    assert await world.quarantine.attempt(waits, well) is None
    assert (world.begun, waits.handed_back) == ([1], [0.05])
    assert world.store.held[2][0].in_group, "it has not been tried"


async def test_what_kills_late_is_condemned_late(world: World) -> None:
    for _ in range(MAX_LATE_CRASHES):
        task = world.give(1)
        await settle()
        await world.clock.advance(OBSERVATION_SECONDS)
        assert not task.done()
        await world.die()
    assert str(MAX_LATE_CRASHES) in (await world.give(1) or "")


async def test_what_outlives_its_trial_is_tried_together_again(world: World) -> None:
    world.give(1)
    await world.die()
    world.give(1)
    await settle()
    assert world.store.held[1][0] == QuarantineRecord(seq=1, attempts_alone=1)
    await world.clock.advance(OBSERVATION_SECONDS)
    assert world.store.held[1][0] == QuarantineRecord(seq=1, late_crashes=1)
    await world.die()
    world.give(1)
    await settle()
    assert world.store.held[1][0] == QuarantineRecord(seq=1, in_group=True, late_crashes=1)


async def test_what_raises_in_its_trials_is_poison(world: World) -> None:
    async def raises() -> None:
        raise KeyError("step")

    for _ in range(MAX_FAILURES - 1):
        with pytest.raises(KeyError):
            await world.give(1, handle=raises)
    assert await world.give(1, handle=raises) == "handling it raised KeyError: 'step'"


async def test_a_handling_that_never_ends_is_a_delivery_that_failed(world: World) -> None:
    world.quarantine = Quarantine(world.store, world.clock, handler_seconds=0.01)
    for deliveries in range(1, SUSPECT + MAX_FAILURES - 1):
        with pytest.raises(Overdue):
            await world.give(1, deliveries)
    why = await world.give(1, SUSPECT + MAX_FAILURES)
    assert "0.01" in (why or "")
    assert world.begun == [1] * (SUSPECT_AFTER_DELIVERIES + MAX_FAILURES)


async def test_a_bus_that_fails_is_nobodys_guilt(world: World) -> None:
    async def fails() -> None:
        raise BusUnavailable("publishing", "down")

    for _ in range(3 * MAX_FAILURES):
        with pytest.raises(BusUnavailable):
            await world.give(1, handle=fails)
    world.store.failures = 1
    task = world.give(1, handle=well)
    await settle()
    await world.clock.advance(1.0)
    assert await task is None


async def test_two_workers_that_try_the_same(world: World) -> None:
    """The second finds the mark of the first, and takes it for a death: alone, then, and no one is condemned."""
    other = Quarantine(world.store, world.clock)
    world.give(1)
    task = asyncio.create_task(other.attempt(Letter(1), well))
    await settle()
    assert await task is None


async def test_an_acquitted_message_leaves_nothing(world: World) -> None:
    world.give(1)
    await world.die()
    assert world.store.held
    await world.quarantine.forget(Letter(1))
    assert world.store.held == {}
