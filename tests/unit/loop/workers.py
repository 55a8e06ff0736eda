"""Workers in a memory world, as the tests of runners that die and race use them."""

import asyncio
from collections import Counter

import msgspec

from cadre.journal import events as ev
from cadre.ports import ModelReply
from cadre.protocol.messages import Record
from cadre.protocol.usage import Usage
from cadre.runtime.runner import Runner
from unit.loop.build import ANSWER, OFFER, SPEC, task
from unit.loop.memory_world import MemoryWorld, ScriptedModel

NOTHING = Usage()


def says(*calls: ev.RequestedCall, content: str = "") -> ModelReply:
    return ModelReply(content=content, calls=list(calls))


def worker(world: MemoryWorld, model: ScriptedModel) -> Runner:
    return world.worker(SPEC, model, OFFER)


def each_cause_once(world: MemoryWorld, run: str = "r1") -> None:
    causes = Counter(entry.cause for entry in world.entries(run))
    assert [cause for cause, count in causes.items() if count > 1] == []


def count(world: MemoryWorld, kind: type[ev.AnyEvent]) -> int:
    return sum(isinstance(event, kind) for event in world.events("r1"))


async def stuck(
    world: MemoryWorld, content: str = "zombie", usage: Usage = NOTHING
) -> tuple[Runner, asyncio.Task[bool], asyncio.Event]:
    """A worker in the middle of the first model call of run r1, and what lets it go on."""
    gate = asyncio.Event()
    model = ScriptedModel(msgspec.structs.replace(says(ANSWER, content=content), usage=usage), gate=gate)
    runner = worker(world, model)
    handling = asyncio.create_task(runner.handle(task()))
    await model.asked.wait()
    return runner, handling, gate


async def dies_unpaid(world: MemoryWorld, runner: Runner, record: Record, deliveries: int = 1) -> None:
    """Kill the worker of a record between its entry and the first message that this owes."""
    world.wire.failing_sends = 1
    world.clock.running.clear()
    handling = asyncio.create_task(runner.handle(record, deliveries))
    await world.clock.asleep.wait()
    handling.cancel()
    await asyncio.wait({handling})
    assert handling.cancelled()
    world.clock.running.set()
