"""Records that come again when the server has forgotten them, twice, or after somebody else's ack."""

import asyncio

import pytest

from cadre.errors import ModelUnavailable
from cadre.journal import events as ev
from cadre.journal.arrivals import Poisoned
from cadre.journal.run import Phase
from cadre.protocol.messages import Addressed
from unit.loop.build import ANSWER, call, result, task
from unit.loop.memory_world import MemoryWorld, ScriptedModel
from unit.loop.workers import count, each_cause_once, says, stuck, worker


async def test_a_lost_model_call_is_made_again_even_if_the_server_forgot_that_it_had_delivered() -> None:
    world = MemoryWorld()
    _, handling, _ = await stuck(world)
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    other = worker(world, ScriptedModel(says(ANSWER)))
    assert await other.handle(task(), deliveries=1) is False, "the record is what keeps the run alive"
    assert await other.handle(task(), deliveries=2)
    assert world.run("r1").phase is Phase.DONE
    each_cause_once(world)


async def test_a_task_published_again_later_leaves_the_first_one_its_model_call() -> None:
    world = MemoryWorld()
    _, handling, gate = await stuck(world)
    other = worker(world, ScriptedModel(says(ANSWER)))
    assert await other.handle(task(), deliveries=1, seq=1000)
    gate.set()
    assert await handling is True
    assert count(world, ev.ModelCalled) == 1


@pytest.mark.parametrize("fresh_worker", [False, True])
async def test_a_record_published_again_is_no_reason_to_send_all_again_once_the_run_has_moved_on(
    fresh_worker: bool,
) -> None:
    """Else each of them has others sent again, which come back as such, until nothing else is handled."""
    world = MemoryWorld()
    world.bus.tools = {}
    asked = [call("add", a=1, b=1), call("subtract", a=1, b=1)]
    first = worker(world, ScriptedModel(says(*asked), says(ANSWER)))
    assert await first.handle(task(), seq=world.place())
    again = world.place()
    assert await first.handle(result("r1_1_1", 0), seq=world.place())
    before = len(world.bus.sent)
    later = worker(world, ScriptedModel(says(ANSWER))) if fresh_worker else first
    assert await later.handle(task(), deliveries=1, seq=again)
    assert len(world.bus.sent) == before


async def test_a_record_that_comes_late_does_not_take_the_wait_of_another_one() -> None:
    """The late one may be acked already: a model call that belonged to it would die with its worker."""
    world = MemoryWorld()
    first = worker(world, ScriptedModel(says(call("add", a=1, b=1)), ModelUnavailable("busy"), says(ANSWER)))
    assert await first.handle(task())
    world.clock.running.clear()
    waiting = asyncio.create_task(first.handle(result("r1_1_0", 2)))
    await world.clock.asleep.wait()
    late = worker(world, ScriptedModel(says(ANSWER)))
    assert await asyncio.wait_for(late.handle(task(), deliveries=2), 5)
    assert len(world.clock.slept) == 1
    world.clock.running.set()
    assert await waiting
    assert world.run("r1").phase is Phase.DONE


async def test_a_long_wait_stays_with_its_timer_however_little_of_it_is_left() -> None:
    world = MemoryWorld()
    busy = worker(world, ScriptedModel(ModelUnavailable("busy", retry_after=30.0)))
    assert await busy.handle(task())
    world.clock.time += 29.5
    other = worker(world, ScriptedModel(says(ANSWER)))
    assert await other.handle(task(), deliveries=2)
    assert (world.clock.slept, len(world.timers())) == ([], 1)
    await world.drive()
    causes = [event.cause for event in world.events("r1") if isinstance(event, ev.ModelCalled)]
    assert causes == ["r1:task", "r1:model-act-1-1"]
    assert world.run("r1").phase is Phase.DONE


async def test_a_task_published_twice_begins_one_run() -> None:
    world = MemoryWorld()
    first = worker(world, ScriptedModel(says(call("add", a=1, b=1)), says(ANSWER)))
    second = worker(world, ScriptedModel(says(call("add", a=1, b=1)), says(ANSWER)))
    acked = await asyncio.gather(first.handle(task()), second.handle(task()))
    assert sorted(acked) == [False, True], "whoever comes second cannot know that the first one lives"
    assert await second.handle(task(), deliveries=2)
    assert count(world, ev.RunAccepted) == 1
    assert count(world, ev.ModelCalled) == 1
    await world.drive()
    assert world.run("r1").phase is Phase.DONE
    each_cause_once(world)


async def test_what_the_end_of_a_poisoned_run_owes_does_not_hang_on_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody else handled the record to its end meanwhile and acked it; then anyone who condemned it died."""
    world = MemoryWorld()
    runner = worker(world, ScriptedModel(says(call("kid", task="x"))))
    await runner.handle(task())
    send = world.bus.send

    async def dies(message: Addressed, sender: str, *, to: str | None = None) -> None:
        if message.id == "r1_1_0:cancel":
            raise asyncio.CancelledError
        await send(message, sender, to=to)

    monkeypatch.setattr(world.bus, "send", dies)
    with pytest.raises(asyncio.CancelledError):
        await runner.poison(Poisoned(id=task().id, deliveries=9, task=task()), "r1", "r1")
    assert world.run("r1").phase is Phase.DONE
    monkeypatch.undo()
    worker(world, ScriptedModel(says(ANSWER)))
    (reminder,) = [one for one in world.stream.inbox if one.record.id == f"{task().id}:condemned"]
    world.stream.inbox = [reminder]
    assert await worker(world, ScriptedModel(says(ANSWER))).handle(reminder.record, 1, reminder.seq)
    assert world.bus.sent[-1].id == "r1_1_0:cancel"
