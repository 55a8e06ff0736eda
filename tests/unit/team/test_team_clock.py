"""The clock of a team in a test: a task that its time has come for is at work again, before it has gone on."""

import asyncio

from cadre.testing.in_memory_deployment import SkippingClock


async def test_a_task_that_was_woken_does_not_sleep_any_more() -> None:
    clock = SkippingClock()
    task = asyncio.create_task(clock.sleep(60.0))
    await asyncio.sleep(0)
    assert clock.sleeping == {task}
    assert clock.skip_to_next()
    assert clock.sleeping == set(), "a team that looks now is not idle"
    assert clock.next_in() is None
    await task


async def test_a_task_that_was_cancelled_does_not_sleep_any_more() -> None:
    clock = SkippingClock()
    task = asyncio.create_task(clock.sleep(60.0))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (clock.sleeping, clock.next_in()) == (set(), None)
