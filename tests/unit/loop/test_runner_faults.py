"""Runners that die, race and lose answers: every run goes on as if nothing had happened."""

import asyncio
from typing import Any

import msgspec
import pytest

from cadre.engine.budget import over_budget
from cadre.errors import ModelUnavailable
from cadre.journal import events as ev
from cadre.journal.run import Phase
from cadre.ports import Appended, Confirm, ModelReply, Stored
from cadre.protocol.messages import Report
from cadre.protocol.usage import Budget, Usage
from cadre.runtime import run_cache
from unit.loop.build import ANSWER, call, cancel, only, result, task
from unit.loop.memory_world import MemoryWorld, ScriptedModel
from unit.loop.workers import count, dies_unpaid, each_cause_once, says, stuck, worker


async def test_a_worker_whose_call_was_taken_over_drops_the_answer_and_walks_away() -> None:
    world = MemoryWorld()
    _, handling, gate = await stuck(world)
    other = worker(world, ScriptedModel(says(call("look", at="x"))))
    assert await other.handle(task(), deliveries=2)
    assert world.run("r1").phase is Phase.ACTING
    gate.set()
    assert await handling is False
    assert [event.content for event in world.events("r1") if isinstance(event, ev.ModelAnswered)] == [""]
    assert [event.attempt for event in world.events("r1") if isinstance(event, ev.ModelCalled)] == [1, 2]
    each_cause_once(world)


async def test_an_answer_that_two_workers_bought_counts_twice_in_usage_and_budget() -> None:
    world = MemoryWorld()
    _, handling, gate = await stuck(world, usage=Usage(input_tokens=50, output_tokens=5))
    paid = msgspec.structs.replace(says(call("look", at="x")), usage=Usage(input_tokens=7, output_tokens=1))
    assert await worker(world, ScriptedModel(paid)).handle(task(), deliveries=2)
    gate.set()
    assert await handling is False
    late = only(world.events("r1"), ev.RecordIgnored)
    assert (late.kind, late.usage) == ("ModelReplied", Usage(50, 5, model_calls=1))
    run = world.run("r1")
    assert run.usage == Usage(input_tokens=57, output_tokens=6, model_calls=2)
    assert over_budget(msgspec.structs.replace(run, budget=Budget(tokens=60))) is not None
    assert over_budget(msgspec.structs.replace(run, budget=Budget(tokens=64))) is None
    each_cause_once(world)


async def test_a_late_answer_is_none_to_the_next_step() -> None:
    """Its attempt has the number of the one that is in flight there."""
    world, usage = MemoryWorld(), Usage(input_tokens=50, output_tokens=5)
    _, zombie, late = await stuck(world, usage=usage)
    assert await worker(world, ScriptedModel(says(call("look", at="x")))).handle(task(), deliveries=2)
    soon = asyncio.Event()
    model = ScriptedModel(says(ANSWER, content="of step 2"), gate=soon)
    second = asyncio.create_task(worker(world, model).handle(result("r1_1_0", "seen")))
    await model.asked.wait()
    late.set()
    await zombie
    soon.set()
    assert await second is True
    contents = [event.content for event in world.events("r1") if isinstance(event, ev.ModelAnswered)]
    assert contents == ["", "of step 2"]
    assert only(world.events("r1"), ev.RecordIgnored).usage == Usage(50, 5, model_calls=1)
    each_cause_once(world)


async def test_an_answer_bought_twice_after_the_end_leaves_what_the_end_told() -> None:
    world = MemoryWorld()
    _, handling, gate = await stuck(world, usage=Usage(input_tokens=50, output_tokens=5))
    assert await worker(world, ScriptedModel(says(ANSWER))).handle(task(), deliveries=2)
    gate.set()
    assert await handling is True
    assert only(world.events("r1"), ev.RecordIgnored).usage.total_tokens == 55
    assert world.run("r1").usage == only(world.events("r1"), ev.RunFinished).usage


@pytest.mark.parametrize("takes_turns", [False, True], ids=["at the append", "in the line for its model"])
async def test_a_worker_that_stood_still_does_not_ask_for_what_another_has_bought(
    takes_turns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped before its request is sent, taken for dead, and goes on as if nothing had happened."""
    world = MemoryWorld()
    gate, stopped = asyncio.Event(), asyncio.Event()
    zombie = ScriptedModel(says(ANSWER, content="zombie"))
    append = world.journal.append

    async def stops_behind(*entry: Any, **how: Any) -> Appended:
        appended = await append(*entry, **how)
        stopped.set()
        await gate.wait()
        return appended

    class InLine(ScriptedModel):
        async def complete_in_turn(self, request: Any, on_text: Any, confirm: Confirm) -> ModelReply:
            stopped.set()
            await gate.wait()
            await confirm()
            return await self.complete(request, on_text)

    if takes_turns:
        zombie = InLine(says(ANSWER, content="zombie"))
    else:
        monkeypatch.setattr(world.journal, "append", stops_behind)
    handling = asyncio.create_task(worker(world, zombie).handle(task()))
    await stopped.wait()
    monkeypatch.undo()
    world.clock.time += 4.5
    assert await worker(world, ScriptedModel(says(call("look", at="x")))).handle(task(), deliveries=2)
    gate.set()
    assert await handling is False
    assert zombie.requests == []
    each_cause_once(world)


async def test_a_worker_that_stood_still_and_was_not_missed_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld()
    append = world.journal.append

    async def slow(*entry: Any, **how: Any) -> Appended:
        appended = await append(*entry, **how)
        world.clock.time += 60.0
        return appended

    monkeypatch.setattr(world.journal, "append", slow)
    assert await worker(world, ScriptedModel(says(ANSWER))).handle(task())
    assert world.run("r1").phase is Phase.DONE
    assert count(world, ev.ModelCalled) == 1


async def test_a_late_worker_may_let_go_of_the_record_of_a_run_that_is_over() -> None:
    world = MemoryWorld()
    _, handling, gate = await stuck(world)
    assert await worker(world, ScriptedModel(says(ANSWER))).handle(task(), deliveries=2)
    gate.set()
    assert await handling is True
    assert count(world, ev.RunFinished) == 1


async def test_a_late_worker_pays_for_whoever_ended_the_run_and_died_of_it() -> None:
    world = MemoryWorld()
    gate = asyncio.Event()
    model = ScriptedModel(says(ANSWER), gate=gate)
    delegated = task(parent="r0")
    late = asyncio.create_task(worker(world, model).handle(delegated))
    await model.asked.wait()
    await dies_unpaid(world, worker(world, ScriptedModel(says(ANSWER))), delegated, deliveries=2)
    assert world.run("r1").phase is Phase.DONE
    assert world.bus.sent == []
    gate.set()
    assert await late is True, "the record may go"
    assert [type(message) for message in world.bus.sent] == [Report], "and nobody else would have told"


@pytest.mark.parametrize("turns", range(4))
async def test_two_results_handled_by_two_processes_make_one_next_step(turns: int) -> None:
    """Both may have folded the same state; the fence makes one of them look again."""
    world = MemoryWorld()
    two = says(call("look", at="x"), call("look", at="y"))
    first = worker(world, ScriptedModel(two, says(ANSWER)))
    second = worker(world, ScriptedModel(says(ANSWER)))
    await first.handle(task())
    await second.handle(result("r1_9_9", "so that it has folded the run"))

    async def later() -> bool:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await second.handle(result("r1_1_1", "y"))

    assert all(await asyncio.gather(first.handle(result("r1_1_0", "x")), later()))
    assert world.run("r1").phase is Phase.DONE
    assert count(world, ev.ToolAnswered) == 2
    assert count(world, ev.ModelCalled) == 2
    each_cause_once(world)


@pytest.mark.parametrize("deliveries", [2, 1], ids=["", "a killed nats-server counts from one again"])
async def test_what_was_journaled_but_not_sent_is_sent_on_redelivery(deliveries: int) -> None:
    world = MemoryWorld()
    await dies_unpaid(world, worker(world, ScriptedModel(says(call("add", a=1, b=1)))), task())
    assert world.bus.sent == []
    model = ScriptedModel(says(ANSWER))
    assert await worker(world, model).handle(task(), deliveries)
    assert [message.id for message in world.bus.sent] == ["r1_1_0"]
    assert model.requests == [], "an answer once journaled is never bought again"
    await world.drive()
    assert world.run("r1").phase is Phase.DONE


async def test_one_send_of_several_that_fails_is_healed_with_all_of_them() -> None:
    world = MemoryWorld()
    worker(world, ScriptedModel(says(call("add", a=1, b=1), call("add", a=2, b=2)), says(ANSWER)))
    world.wire.failing_sends = 1
    await world.drive(task())
    assert world.run("r1").phase is Phase.DONE
    assert count(world, ev.ToolAnswered) == 2
    each_cause_once(world)


async def test_a_worker_that_dies_in_its_model_call_is_replaced() -> None:
    world = MemoryWorld()
    _, handling, _ = await stuck(world)
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    assert world.run("r1").phase is Phase.THINKING
    assert await worker(world, ScriptedModel(says(ANSWER))).handle(task(), deliveries=2)
    assert world.run("r1").phase is Phase.DONE
    assert [event.attempt for event in world.events("r1") if isinstance(event, ev.ModelCalled)] == [1, 2]
    each_cause_once(world)


async def test_a_worker_that_dies_in_a_short_wait_is_replaced() -> None:
    world = MemoryWorld()
    dead = worker(world, ScriptedModel(ModelUnavailable("busy")))
    world.clock.running.clear()
    handling = asyncio.create_task(dead.handle(task()))
    await world.clock.asleep.wait()
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    world.clock.running.set()
    assert await worker(world, ScriptedModel(says(ANSWER))).handle(task(), deliveries=2)
    assert world.run("r1").phase is Phase.DONE
    each_cause_once(world)


async def test_of_two_workers_in_the_same_short_wait_one_goes_on_and_one_walks_away() -> None:
    world = MemoryWorld()
    busy = ModelUnavailable("busy")
    workers = [worker(world, ScriptedModel(busy, says(ANSWER))), worker(world, ScriptedModel(says(ANSWER)))]
    world.clock.running.clear()
    handling = [asyncio.create_task(workers[0].handle(task()))]
    await world.clock.asleep.wait()
    world.clock.asleep.clear()
    handling.append(asyncio.create_task(workers[1].handle(task(), deliveries=2)))
    await world.clock.asleep.wait()
    world.clock.running.set()
    assert sorted(await asyncio.gather(*handling)) == [False, True]
    assert world.run("r1").phase is Phase.DONE
    assert count(world, ev.ModelAnswered) == 1
    each_cause_once(world)


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
async def test_an_append_whose_answer_is_lost_is_not_made_twice(lost: int) -> None:
    world = MemoryWorld()
    worker(world, ScriptedModel(says(call("add", a=1, b=1)), says(ANSWER)))
    world.wire.lost_answers = lost
    await world.drive(task())
    run = world.run("r1")
    assert run.phase is Phase.DONE
    assert run.step == 2
    assert count(world, ev.RunAccepted) == 1
    assert count(world, ev.ToolAnswered) == 1
    each_cause_once(world)


async def test_a_worker_keeps_its_answer_while_the_journal_gives_none() -> None:
    """The outcome of each append is found out by one read, and no model is asked again for it."""
    world, model = MemoryWorld(), ScriptedModel(says(ANSWER))
    world.wire.lost_answers = 2
    assert await worker(world, model).handle(task())
    assert world.run("r1").phase is Phase.DONE
    assert (len(model.requests), count(world, ev.ModelCalled), len(world.entries("r1"))) == (1, 1, 2)
    assert world.wire.asked["reading a journal"] == 2
    each_cause_once(world)


@pytest.mark.parametrize(("seconds_at_once", "reads"), [(1.0, 0), (60.0, 2)], ids=["slow server", "standstill"])
async def test_reads_of_a_run_do_not_rise_with_the_time_that_answers_take(
    seconds_at_once: float, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that waits knows that its answer is new; one that stood still asks once for each model call."""
    world = MemoryWorld()
    append = world.journal.append
    monkeypatch.setattr(run_cache, "BEAT_SECONDS", 0.0)

    async def slow(*entry: Any, **how: Any) -> Appended:
        appended = await append(*entry, **how)
        for _ in range(60 // int(seconds_at_once)):
            world.clock.time += seconds_at_once
            await asyncio.sleep(0)
        return appended

    monkeypatch.setattr(world.journal, "append", slow)
    runner = worker(world, ScriptedModel(says(call("look", at="x")), says(ANSWER)))
    assert await runner.handle(task())
    assert await runner.handle(result("r1_1_0", "x"))
    assert world.run("r1").phase is Phase.DONE
    assert world.wire.asked["reading a journal"] == reads


async def test_records_of_one_run_share_a_read_of_its_journal() -> None:
    world = MemoryWorld()
    looks = [call("look", at=str(number)) for number in range(8)]
    await worker(world, ScriptedModel(says(*looks))).handle(task())
    other = worker(world, ScriptedModel(says(ANSWER)))
    asked = world.wire.asked["reading a journal"]
    assert all(await asyncio.gather(*(other.handle(result(f"r1_1_{number}", "x")) for number in range(8))))
    assert world.run("r1").phase is Phase.DONE
    assert world.wire.asked["reading a journal"] == asked + 1


@pytest.mark.parametrize("own", [True, False], ids=["of its own process", "in another process"])
async def test_a_cancel_stops_the_model_call(own: bool) -> None:
    world = MemoryWorld()
    runner, handling, gate = await stuck(world)
    assert await (runner if own else worker(world, ScriptedModel(says(ANSWER)))).handle(cancel())
    assert await handling is True, "the run is over: its record may be let go"
    assert not gate.is_set()
    assert only(world.events("r1"), ev.RunFinished).state == "cancelled"
    assert count(world, ev.ModelAnswered) == 0


async def test_an_answer_that_comes_after_the_end_is_dropped() -> None:
    world = MemoryWorld()
    _, handling, gate = await stuck(world)
    world.bus.runners.clear()  # the interrupt is lost
    await worker(world, ScriptedModel(says(ANSWER))).handle(cancel())
    gate.set()
    assert await handling is True
    assert count(world, ev.ModelAnswered) == 0


async def test_an_interrupt_is_a_hint_and_the_journal_is_the_truth() -> None:
    world = MemoryWorld()
    runner, handling, _ = await stuck(world)
    runner.interrupt("r1")
    assert await handling is False, "the run goes on, so its record must come back"
    assert await worker(world, ScriptedModel(says(ANSWER))).handle(task(), deliveries=2)
    assert world.run("r1").phase is Phase.DONE
    runner.interrupt("nobody")


async def test_a_record_seen_before_is_let_go_without_a_word() -> None:
    world = MemoryWorld()
    runner = worker(world, ScriptedModel(says(call("look", at="x")), says(ANSWER)))
    await runner.handle(task())
    await runner.handle(result("r1_1_0", "x"))
    entries, sent = len(world.entries("r1")), len(world.bus.sent)
    for deliveries in (1, 2, 3):
        assert await runner.handle(result("r1_1_0", "x"), deliveries)
        assert await runner.handle(task(), deliveries)
    assert (len(world.entries("r1")), len(world.bus.sent)) == (entries, sent)


async def test_a_state_that_is_invalid_as_soon_as_it_was_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that runs in the moment in which a read ends must not be given the outcome of that read for ever."""
    world, begun, gate = MemoryWorld(), asyncio.Event(), asyncio.Event()
    await worker(world, ScriptedModel(says(call("look", at="x")))).handle(task())
    cache = worker(world, ScriptedModel(says(ANSWER))).journaling.cache
    read, get, reads, asked = world.journal.read, cache.get, 0, 0

    async def read_at_the_gate(tree: str, run: str) -> list[Stored]:
        nonlocal reads
        reads, stored = reads + 1, await read(tree, run)
        begun.set()
        await gate.wait()
        return stored

    async def get_and_count(tree: str, run: str, *, fresh: bool = False) -> run_cache.CachedRun:
        nonlocal asked
        asked += 1
        assert asked < 20, "the loop never yields"
        return await get(tree, run, fresh=fresh)

    async def at_that_moment() -> bool:
        await gate.wait()
        return await cache.accounts_for("of a person", "r1", "r1")

    monkeypatch.setattr(world.journal, "read", read_at_the_gate)
    monkeypatch.setattr(cache, "get", get_and_count)
    first = asyncio.create_task(cache.accounts_for(task().id, "r1", "r1"))
    await begun.wait()
    second = asyncio.create_task(at_that_moment())
    await asyncio.sleep(0)
    gate.set()
    assert await first
    assert not await second
    assert reads == 2
