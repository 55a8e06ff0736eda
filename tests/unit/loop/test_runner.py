"""Runners over a world in memory: delegation, waits, long journals, sessions, the end by poison."""

from typing import Any

import pytest

import cadre.runtime.run_cache
from cadre.delivery.codec import encode
from cadre.errors import ModelRefused, ModelUnavailable
from cadre.journal import events as ev
from cadre.journal.arrivals import Poisoned, Toolset
from cadre.journal.run import ActionStep, Phase
from cadre.ports import ModelReply
from cadre.protocol.messages import Report
from cadre.protocol.usage import Usage
from cadre.runtime.runner import Runner
from cadre.spec.agent import AgentSpec, Limits
from unit.loop.build import ADD, ANSWER, OFFER, SPEC, call, cancel, result, spec, task
from unit.loop.memory_world import PROMPTS, Answer, MemoryWorld, ScriptedModel

KID = AgentSpec(name="kid", description="Helps.", tools=["add"])


def says(*calls: ev.RequestedCall, content: str = "") -> ModelReply:
    return ModelReply(content=content, calls=list(calls), usage=Usage(10, 1), model="m")


def worker(world: MemoryWorld, model: ScriptedModel, agent: AgentSpec = SPEC) -> Runner:
    return world.worker(agent, model, OFFER if agent.name == "boss" else Toolset(tools={"add": ADD}))


async def test_a_run_that_delegates() -> None:
    world = MemoryWorld()
    worker(world, ScriptedModel(says(call("kid", task="Add."), call("add", a=1, b=1)), says(ANSWER)))
    kid = ScriptedModel(says(call("add", a=20, b=22)), says(call("final_answer", answer={"sum": 42})))
    worker(world, kid, KID)
    await world.drive(task())
    run = world.run("r1")
    assert run.result is not None
    assert (run.result.state, run.result.output) == ("success", "42")
    step = run.steps[1]
    assert isinstance(step, ActionStep)
    assert [seen.observation for seen in step.calls] == [PROMPTS.managed_report("kid", '{"sum":42}'), "2"]
    assert run.usage == Usage(40, 4, 4, steps=4)
    child = world.run("r1_1_0")
    assert child.parent == "r1"
    assert {entry.parent for entry in world.entries("r1_1_0")} == {"r1"}
    assert child.task is not None
    assert child.task.path == ["boss"]
    assert [(delta.run, delta.attempt) for delta in world.bus.deltas].count(("r1_1_0", 1)) == 2
    assert [entry.n for entry in world.entries("r1")] == list(range(1, run.entries + 1))


async def test_a_member_that_fails_is_an_observation_of_its_manager() -> None:
    world = MemoryWorld()
    boss = ScriptedModel(says(call("kid", task="Add.")), says(ANSWER))
    worker(world, boss)
    worker(world, ScriptedModel(ModelRefused("bad key", status=401)), KID)
    await world.drive(task())
    assert world.run("r1").phase is Phase.DONE
    assert "bad key" in boss.requests[-1].messages[-1]["content"]


async def test_a_short_wait_is_waited_for_in_place() -> None:
    world = MemoryWorld()
    runner = worker(world, ScriptedModel(ModelUnavailable("busy"), says(ANSWER)))
    assert await runner.handle(task())
    assert world.clock.slept == [0.5]
    assert world.timers() == {}
    assert world.run("r1").phase is Phase.DONE


async def test_a_long_wait_is_a_timer_and_holds_no_record() -> None:
    world = MemoryWorld()
    busy = ModelUnavailable("slow down", status=429, retry_after=60.0, rate_limited=True)
    runner = worker(world, ScriptedModel(busy, busy, says(ANSWER)))
    assert await runner.handle(task())
    assert world.run("r1").phase is Phase.WAITING
    assert world.clock.slept == []
    assert [*world.timers().values()] == [1060.0]
    await world.drive()
    assert world.clock.now() == 1120.0
    assert world.run("r1").phase is Phase.DONE


@pytest.mark.parametrize("retry_after", [0.5, 5.0])
async def test_plan_step_and_answer_of_one_number_may_each_have_to_wait(retry_after: float) -> None:
    world = MemoryWorld()
    busy = ModelUnavailable("busy", retry_after=retry_after)
    texts = ("a plan", "no call", "the answer")
    answers: list[Answer] = [one for text in texts for one in (busy, says(content=text))]
    worker(world, ScriptedModel(*answers), spec(planning_interval=1))
    await world.drive(task(max_steps=1))
    ended = world.result("r1")
    assert (ended.state, ended.output) == ("max_steps_error", "the answer")


async def test_a_stray_record_does_not_take_away_the_timer_that_a_run_waits_for() -> None:
    world = MemoryWorld()
    runner = worker(world, ScriptedModel(ModelUnavailable("busy", retry_after=9.0), says(ANSWER)))
    await runner.handle(task())
    await runner.handle(result("r1_9_0", "stray"))
    assert len(world.timers()) == 1
    await world.drive()
    assert world.run("r1").phase is Phase.DONE


async def test_the_end_of_a_run_takes_its_timer_along() -> None:
    world = MemoryWorld()
    runner = worker(world, ScriptedModel(ModelUnavailable("busy", retry_after=9.0)))
    await runner.handle(task())
    await runner.handle(cancel())
    assert world.timers() == {}


async def test_a_long_journal_is_read_from_its_end() -> None:
    world = MemoryWorld()
    long = spec(limits=Limits(max_steps=400, repeats=0))
    runner = worker(world, ScriptedModel(says(content="no call")), long)
    await runner.handle(task())
    entries = world.entries("r1")
    assert max(len(entry.earlier) for entry in entries) < 31 + 402 // 32 + 1
    read = [stored.entry for stored in await world.journal.read("r1", "r1")]
    assert [entry.n for entry in read] == list(range(1, 403))
    assert await worker(world, ScriptedModel(says(ANSWER)), long).handle(cancel())
    assert world.entries("r1")[-1].n == 403


async def test_a_journal_of_200_observations_takes_less_than_twice_what_they_do() -> None:
    world = MemoryWorld()
    long = spec(limits=Limits(max_steps=200, repeats=0))
    world.bus.tools["look"] = lambda **_: "o" * 4000
    worker(world, ScriptedModel(says(call("look", at="here"))), long)
    await world.drive(task())
    stored = sum(len(encode(entry)) for entry in world.entries("r1"))
    assert 200 * 4000 < stored < 2 * 200 * 4000


async def test_runs_pushed_out_of_the_cache_are_folded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cadre.runtime.run_cache, "MOST_RUNS", 2)
    world = MemoryWorld()
    add_or_answer = says(call("add", a=1, b=1))

    class Adding(ScriptedModel):
        async def complete(self, request: Any, on_text: Any) -> ModelReply:
            return says(ANSWER) if len(request.messages) > 6 else add_or_answer

    worker(world, Adding(says()))
    await world.drive(*(task(run=f"r{number}") for number in range(12)))
    assert [world.run(f"r{number}").step for number in range(12)] == [4] * 12
    assert all(world.run(f"r{number}").phase is Phase.DONE for number in range(12))
    assert world.wire.asked["reading a journal"] > 12


async def test_a_session_goes_on_from_the_journal_of_its_last_run() -> None:
    world = MemoryWorld()
    model = ScriptedModel(says(call("final_answer", answer="one")), says(ANSWER))
    worker(world, model)
    await world.drive(task("First?"))
    await world.drive(task("And then?", run="r2", continues="r1"))
    contents = [message["content"] for message in model.requests[-1].messages[1:]]
    assert contents[0] == PROMPTS.new_task("First?")
    assert contents[-2:] == ["one", PROMPTS.new_task("And then?")]


async def test_a_poisoned_task_ends_its_run_and_its_manager_is_told() -> None:
    world = MemoryWorld()
    worker(world, ScriptedModel(says(call("kid", task="x")), says(ANSWER)))
    kid = worker(world, ScriptedModel(says(ANSWER)), KID)
    bad = task(run="r1_1_0", parent="r1")
    await kid.poison(Poisoned(id=bad.id, deliveries=6, task=bad), "r1", "r1_1_0")
    reminder, sent = world.bus.sent
    assert (reminder.id, reminder.run) == (f"{bad.id}:condemned", "r1_1_0")
    assert isinstance(sent, Report)
    assert (sent.run, sent.state) == ("r1", "error")
    assert sent.error is not None
    assert sent.error.type == "Poisoned"
    assert world.entries("r1_1_0")[0].parent == "r1"


class Fatal(Exception):
    """A blow that kills a worker in the middle of a model call."""


async def test_a_record_is_poison_too_when_what_follows_from_it_kills() -> None:
    world = MemoryWorld()
    kid = worker(world, ScriptedModel(Fatal()), KID)
    bad = task(run="r1_1_0", parent="r1")
    for deliveries in range(1, 6):
        with pytest.raises(Fatal):
            await kid.handle(bad, deliveries)
    await worker(world, ScriptedModel(Fatal()), KID).poison(Poisoned(id=bad.id, deliveries=6, task=bad), "r1", "r1_1_0")
    assert world.run("r1_1_0").phase is Phase.DONE
    _, sent = world.bus.sent
    assert isinstance(sent, Report)
    assert sent.error is not None
    assert sent.error.type == "Poisoned"
    await kid.poison(Poisoned(id=bad.id, deliveries=7, task=bad), "r1", "r1_1_0")
    reports = [message for message in world.bus.sent if isinstance(message, Report)]
    assert reports == [sent, sent], "paid again, decided once"


async def test_poison_cancels_what_the_run_had_asked_for() -> None:
    world = MemoryWorld()
    runner = worker(world, ScriptedModel(says(call("kid", task="x"), call("look", at="x"))))
    await runner.handle(task())
    await runner.poison(Poisoned(id="odd", deliveries=6), "r1", "r1")
    ended = world.result("r1")
    assert ended.error.type == "Poisoned"
    sent = [message.id for message in world.bus.sent]
    assert sent == ["r1_1_0:task", "r1_1_1", "odd:condemned", "r1_1_0:cancel"]
