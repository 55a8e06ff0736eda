"""Runners over a world in memory: deadlines and decisions that come while a worker is at work, or dead."""

import asyncio

import pytest

from cadre.engine.commands import SetTimer
from cadre.journal import events as ev
from cadre.journal.arrivals import Toolset
from cadre.journal.run import Phase
from cadre.ports import ModelReply
from cadre.protocol.messages import Decision, ToolCall
from cadre.protocol.usage import Usage
from cadre.runtime.journaling import World
from cadre.runtime.run_cache import PinnedPrompts
from cadre.runtime.runner import Payments, Runner
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import Price
from cadre.spec.prices import Prices
from unit.loop.build import ADD, ANSWER, call, cancel, task, timer
from unit.loop.memory_world import PROMPTS, MemoryWorld, ScriptedModel

OFFER = Toolset(tools={"add": ADD})
USED = Usage(input_tokens=50_000, output_tokens=20_000)
SPEC = AgentSpec(name="boss", description="Leads.", tools=["add"], approvals={"add": "when: a > 10"})


def adding(a: int) -> ModelReply:
    return ModelReply(calls=[call("add", a=a, b=1)])


async def test_a_deadline_stops_the_model_call_in_flight() -> None:
    world = MemoryWorld()
    model = ScriptedModel(ModelReply(calls=[ANSWER]), gate=asyncio.Event())
    runner = world.worker(SPEC, model, OFFER)
    handling = asyncio.create_task(runner.handle(task(deadline=1500.0), 1, 1))
    await model.asked.wait()
    assert "deadline" in world.timers()
    world.clock.time = 1500.0
    assert await runner.handle(timer("deadline"), 1, 5)
    assert await asyncio.wait_for(handling, 30), "nothing is left to do: the task may be acked"
    ended = world.result("r1")
    assert ended.error.type == "DeadlineExceeded"


async def test_a_deadline_stops_the_model_call_also_when_its_timer_does_not_come() -> None:
    """It may wait for a place at this very worker, whose places are all taken by calls that hang."""
    world = MemoryWorld()
    model = ScriptedModel(ModelReply(calls=[ANSWER]), gate=asyncio.Event())
    runner = world.worker(SPEC, model, OFFER)
    due = world.clock.time + 0.05
    assert await asyncio.wait_for(runner.handle(task(deadline=due), 1, 1), 30)
    assert world.result("r1").error.type == "DeadlineExceeded"
    entries = len(world.entries("r1"))
    assert await runner.handle(timer("deadline"), 1, 5), "late, it changes nothing"
    assert len(world.entries("r1")) == entries


async def test_a_deadline_that_was_not_set_before_the_worker_died_is_set_by_the_next() -> None:
    world = MemoryWorld()
    model = ScriptedModel(ModelReply(calls=[ANSWER]), gate=asyncio.Event())
    first = world.worker(SPEC, model, OFFER)
    handling = asyncio.create_task(first.handle(task(deadline=1500.0), 1, 1))
    await model.asked.wait()
    handling.cancel()
    await asyncio.gather(handling, return_exceptions=True)
    world.lose_timers()  # as if it had died between the append and the payment
    second = world.worker(SPEC, ScriptedModel(adding(1)), OFFER)
    assert await second.handle(task(deadline=1500.0), 2, 1)
    assert "deadline" in world.timers()


async def test_an_approved_call_goes_on_with_any_worker() -> None:
    world = MemoryWorld()
    world.worker(SPEC, ScriptedModel(adding(11)), OFFER)
    await world.drive(task())
    assert [message for message in world.bus.sent if isinstance(message, ToolCall)] == []
    assert world.run("r1").phase is Phase.ACTING
    world.worker(SPEC, ScriptedModel(ModelReply(calls=[ANSWER])), OFFER)
    approved = Decision(id="d1", tree="r1", run="r1", at=1.0, call="r1_1_0", verdict="approved", sender="ann")
    rejected = Decision(id="d2", tree="r1", run="r1", at=1.0, call="r1_1_0", verdict="rejected", sender="bob")
    await world.drive(approved, rejected)
    ended = world.result("r1")
    assert ended.state == "success"
    decided = [event for event in world.events("r1") if isinstance(event, ev.ApprovalDecided)]
    assert len(decided) == 1
    assert len([event for event in world.events("r1") if isinstance(event, ev.RecordIgnored)]) == 1


async def test_a_cancel_revokes_open_calls() -> None:
    world = MemoryWorld()
    world.bus.tools.clear()
    world.worker(SPEC, ScriptedModel(adding(1)), OFFER)
    await world.drive(task())
    await world.drive(cancel())
    assert world.bus.revoked == ["r1_1_0"]


@pytest.mark.parametrize(("cached", "cost"), [(None, 0.25), (0.0, 0.2)])
async def test_what_a_model_call_costs_is_journaled(cached: float | None, cost: float) -> None:
    world = MemoryWorld()
    table = Prices({"m-*": Price(input=1.0, output=10.0, cached=cached)})
    model = ScriptedModel(ModelReply(calls=[ANSWER], model="m-1", usage=USED, cached_tokens=USED.input_tokens))
    runner = Runner(
        SPEC,
        PinnedPrompts(PROMPTS),
        World(world.journal, world.bus, model, world.clock, world.tallies),
        lambda: OFFER,
        table,
    )
    await runner.handle(task(), 1, 1)
    run = world.run("r1")
    assert run.usage.cost == cost
    assert run.unpriced is None


async def test_a_model_nobody_knows_the_price_of_is_told_as_such() -> None:
    world = MemoryWorld()
    model = ScriptedModel(ModelReply(calls=[ANSWER], model="other", usage=USED))
    world.worker(AgentSpec(name="boss", description="Leads.", limits=Limits()), model, OFFER)
    await world.drive(task())
    assert world.run("r1").unpriced == "other"


@pytest.mark.parametrize(
    ("seconds", "cause", "scheduled"),
    [(0.5, "r1:task", 0), (1.0, "r1:task", 0), (1.1, "r1:task", 1), (0.5, None, 1)],
)
async def test_a_wait_of_a_second_is_the_workers_own_and_a_longer_one_the_servers(
    seconds: float, cause: str | None, scheduled: int
) -> None:
    world = MemoryWorld()
    wait = SetTimer(timer("model-act-1-1"), due=100.0 + seconds, began=100.0, cause=cause)
    short = await Payments(
        World(world.journal, world.bus, ScriptedModel(), world.clock, world.tallies), PinnedPrompts(PROMPTS), "boss"
    ).pay([wait])
    assert (short is None, len(world.timers())) == (scheduled == 1, scheduled)
