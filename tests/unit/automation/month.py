"""A simulated deployment of three schedulers: states in memory with fences, alarms by a clock that is set, deaths."""

import asyncio
import random
from collections import Counter
from typing import Any

import msgspec

from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import OwedStart, ScheduleState, decide
from cadre.errors import Fenced, UnreadableMessage
from cadre.protocol.access import Maker
from cadre_gateway.automation.evaluator import EvaluationEnded
from cadre_gateway.automation.scheduler import Scheduler, StartRefused


class SetClock:
    """ports.Clock: a time that the test sets."""

    def __init__(self, now: float) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class FencedStates:
    """States by name as bytes, each with its fence, as a stream keeps them. Others run at every access."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[bytes, int]] = {}
        self._seq = 0
        self.fenced = 0

    async def read(self, name: str) -> tuple[ScheduleState | None, int]:
        await asyncio.sleep(0)
        data, fence = self._held.get(name, (b"", 0))
        return (msgspec.json.decode(data, type=ScheduleState) if data else None), fence

    async def write(self, name: str, value: ScheduleState, fence: int) -> int:
        await asyncio.sleep(0)
        if self._held.get(name, (b"", 0))[1] != fence:
            self.fenced += 1
            raise Fenced(name)
        self._seq += 1
        self._held[name] = (msgspec.json.encode(value), self._seq)
        await asyncio.sleep(0)
        return self._seq

    async def all(self) -> list[ScheduleState | UnreadableMessage]:
        return [msgspec.json.decode(data, type=ScheduleState) for data, _ in self._held.values()]


class ServerAlarms:
    """One alarm per schedule, replaced by the next."""

    def __init__(self) -> None:
        self.due: dict[str, float] = {}
        self.letters: list[tuple[str, float, str]] = []

    async def set(self, schedule: str, due: float) -> None:
        await asyncio.sleep(0)
        self.due[schedule] = due
        await asyncio.sleep(0)

    async def wake(self, schedule: str, tick: float) -> None:
        await self.set(schedule, 0.0)

    async def give_up(self, schedule: str, tick: float, why: str) -> None:
        await asyncio.sleep(0)
        self.letters.append((schedule, tick, why))


class DecisionsHere:
    """Decides in this process; of a tick in `killing` the evaluation never ends."""

    def __init__(self) -> None:
        self.killing: set[float] = set()

    async def decide(self, state: ScheduleState, now: float, busy: bool, giving_up: str = "") -> ScheduleState:
        await asyncio.sleep(0)
        if state.next_at in self.killing and not giving_up and state.next_at <= now:
            raise EvaluationEnded("it never ends")
        return decide(state, now, busy, giving_up)


class InboxRuns:
    """Runs that are started by publishing a task of a derived id, and end after `lasting` seconds."""

    def __init__(self, clock: SetClock, lasting: float) -> None:
        self._clock = clock
        self._lasting = lasting
        self.started: dict[str, tuple[OwedStart, float]] = {}
        self.published: Counter[str] = Counter()
        self.cancelled: dict[str, float] = {}
        self.lost: dict[str, str] = {}
        """Keys of makers that count no more, and why."""

    async def start(self, start: OwedStart, options: dict[str, Any], maker: Maker) -> str:
        await asyncio.sleep(0)
        self.published[start.run] += 1
        self.started.setdefault(start.run, (start, self._clock.now()))
        await asyncio.sleep(0)
        return start.run

    async def check(self, spec: ScheduleSpec, maker: Maker) -> None:
        await asyncio.sleep(0)
        if maker.key in self.lost:
            raise StartRefused("the key was revoked", self.lost[maker.key])

    async def is_active(self, run: str) -> bool:
        await asyncio.sleep(0)
        if run not in self.started or run in self.cancelled:
            return False
        return self._clock.now() < self.started[run][1] + self._lasting

    async def cancel(self, run: str, reason: str) -> None:
        await asyncio.sleep(0)
        self.cancelled.setdefault(run, self._clock.now())


class SimulatedGateways:
    """Three schedulers over one store. At each alarm all may be reported; one of them dies somewhere on its way."""

    def __init__(self, seed: int, now: float, lasting: float = 0.0) -> None:
        self._random = random.Random(seed)
        self.clock = SetClock(now)
        self.states = FencedStates()
        self.alarms = ServerAlarms()
        self.runs = InboxRuns(self.clock, lasting)
        self.decisions = DecisionsHere()
        self.schedulers = [Scheduler(self.states, self.alarms, self.runs, self.clock, self.decisions) for _ in range(3)]
        self.deaths = 0

    async def until(self, end: float) -> None:
        """Lets time pass, alarm by alarm."""
        while self.alarms.due and (moment := min(self.alarms.due.values())) <= end:
            self.clock.time = max(self.clock.time, moment)
            for name in [name for name, due in self.alarms.due.items() if due <= moment]:
                del self.alarms.due[name]
                await self._deliver(name)
        self.clock.time = max(self.clock.time, end)

    async def _deliver(self, name: str) -> None:
        """One takes it and is killed on its way; it is delivered again to another, while a third is sent as well."""
        first, *others = self._random.sample(self.schedulers, 3)
        dying = asyncio.create_task(first.handle(name))
        for _ in range(self._random.randrange(25)):
            await asyncio.sleep(0)
        if not dying.done():
            self.deaths += 1
            dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        self.clock.time += self._random.choice([0.0, 0.3, 4.0])
        told = others[: self._random.choice([1, 1, 2])]
        await asyncio.gather(*(one.handle(name) for one in told))
