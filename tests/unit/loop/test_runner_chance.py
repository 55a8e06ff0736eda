"""Teams of runners in which sends and appends fail, workers die and records come twice, as chance has it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelUnavailable, RetryableError
from cadre.journal import events as ev
from cadre.journal.arrivals import Offer
from cadre.ports import ModelReply, OnText
from cadre.protocol.messages import Task, ToolCall
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import ModelSpec
from unit.loop.build import ADD, KID, call, cancel, task
from unit.loop.memory_world import Delivered, MemoryWorld

PATIENT = ModelSpec(retries=1000)
BOSS = AgentSpec(
    name="boss",
    description="Leads.",
    tools=["add"],
    team=["kid"],
    planning_interval=2,
    limits=Limits(max_steps=4),
    model=PATIENT,
)
HELPER = AgentSpec(name="kid", description="Helps.", tools=["add"], model=PATIENT)


class Moody:
    """ports.Model: calls something twice, then answers; now and then it is busy."""

    def __init__(self, chance: random.Random, member: bool) -> None:
        self._chance = chance
        self._calls = [call("add", a=1, b=1)] if member else [call("kid", task="Add."), call("add", a=2, b=2)]

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)
        if self._chance.random() < 0.2:
            raise ModelUnavailable("busy", retry_after=self._chance.choice([None, 0.3, 30.0]))
        if not request.tools:
            return ModelReply(content="a plan, or the answer")
        made = sum(message["role"] == "tool" for message in request.messages)
        if made >= 2 * len(self._calls):
            return ModelReply(calls=[call("final_answer", answer="42")])
        return ModelReply(calls=self._calls)


class Chance:
    """Delivers everything until nothing is left, badly: late, twice, to any replica, some of which die."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = MemoryWorld()
        kid = Offer(tools={"add": ADD})
        boss = Offer(tools={"add": ADD}, members={"kid": KID})
        self.replicas = {
            "boss": [self.world.worker(BOSS, Moody(self.random, False), boss) for _ in range(3)],
            "kid": [self.world.worker(HELPER, Moody(self.random, True), kid) for _ in range(2)],
        }
        self.trouble = 60

    def happens(self, chance: float) -> bool:
        """Trouble comes by chance, and in the end it is over."""
        if self.trouble and self.random.random() < chance:
            self.trouble -= 1
            return True
        return False

    async def deliver(self, one: Delivered) -> None:
        runner = self.random.choice(self.replicas[one.agent])
        if self.happens(0.2):
            self.world.bus.failing_sends += 1
        if self.happens(0.2):
            self.world.journal.lost_answers += 1
        handling = asyncio.create_task(runner.handle(one.record, one.deliveries, one.seq))
        if self.happens(0.2):
            acked = await self._kill(handling)
        else:
            acked = await self._settle(handling)
        if not acked or self.happens(0.1):
            # A server that is killed right after a delivery does not know of it any more.
            forgotten = self.happens(0.1)
            again = one if forgotten else one._replace(deliveries=one.deliveries + 1)
            self.world.bus.inbox.append(again)

    async def _kill(self, handling: asyncio.Task[bool]) -> bool:
        for _ in range(self.random.randrange(12)):
            await asyncio.sleep(0)
        handling.cancel()
        try:
            return await self._settle(handling)
        except asyncio.CancelledError:
            return False

    async def _settle(self, handling: asyncio.Task[bool]) -> bool:
        try:
            return await handling
        except RetryableError:
            return False

    async def drive(self, *, cancelled_after: int | None = None) -> None:
        bus = self.world.bus
        bus.arrive("boss", task())
        for turn in range(2000):
            if turn == cancelled_after:
                bus.arrive("boss", cancel())
            if not bus.inbox and not bus.timers and turn > (cancelled_after or 0):
                return
            if not bus.inbox and not bus.timers:
                continue
            if not bus.inbox:
                self.world.let_a_timer_go_off()
            self.random.shuffle(bus.inbox)
            some = self.random.randint(1, len(bus.inbox))
            batch, bus.inbox = bus.inbox[:some], bus.inbox[some:]
            # A worker that says nothing for too long is held for dead, and goes on all the same.
            batch += [one._replace(deliveries=one.deliveries + 1) for one in batch if self.happens(0.15)]
            await asyncio.gather(*(self.deliver(one) for one in batch))
        raise AssertionError(f"still at work: {bus.inbox}")


def runs_of(world: MemoryWorld) -> set[str]:
    return {"r1"} | {message.run for message in world.bus.sent if isinstance(message, Task)}


def each_record_once(world: MemoryWorld, run: str) -> None:
    causes = Counter(entry.cause for entry in world.journal.entries(run))
    assert [cause for cause, count in causes.items() if count > 1] == []


@pytest.mark.parametrize("seed", range(150))
async def test_whatever_goes_wrong_every_run_ends_well(seed: int) -> None:
    chance = Chance(seed)
    await chance.drive()
    world = chance.world
    assert len(runs_of(world)) > 2
    for name in runs_of(world):
        ended = world.result(name)
        assert ended.state == "success"
        each_record_once(world, name)
    answered = Counter(event.call for event in world.events("r1") if isinstance(event, ev.ToolAnswered))
    assert set(answered.values()) == {1}
    called: dict[str, ToolCall] = {}
    for message in world.bus.sent:
        if isinstance(message, ToolCall):
            assert called.setdefault(message.id, message) == message, "paid again, it is the same call"


@pytest.mark.parametrize("seed", range(60))
async def test_a_cancel_at_any_moment_ends_the_whole_tree(seed: int) -> None:
    chance = Chance(seed)
    await chance.drive(cancelled_after=seed % 15)
    world = chance.world
    for name in runs_of(world):
        ended = world.result(name)
        assert ended.state in ("cancelled", "success")
        each_record_once(world, name)
    events = world.events("r1")
    ends = [at for at, event in enumerate(events) if isinstance(event, ev.RunFinished)]
    assert len(ends) == 1
    assert {type(event) for event in events[ends[0] + 1 :]} <= {ev.RecordIgnored}
