"""Evaluations in a process of their own: ended in time, and begun again in a new process."""

import os
import signal

import pytest

from cadre.automation.schedule import ScheduleSpec
from cadre.automation.schedule_state import new_schedule
from cadre.automation.trigger import TriggerSpec
from cadre.errors import SpecError
from cadre_gateway.automation.evaluator import EvaluationEnded, Evaluator

NOW = 1_772_323_200.0
TRIGGER = TriggerSpec(name="t", agent="clerk", subject="orders", task="{{ payload.item | upper }} {{ subject }}")


async def test_it_decides_and_renders_as_this_process_would() -> None:
    evaluator = Evaluator()
    try:
        assert await evaluator.task_for(TRIGGER, b'{"item": "a"}', "m1", "orders") == "A orders"
        with pytest.raises(SpecError):
            await evaluator.task_for(TRIGGER, b"{}", "m2", "orders")
        spec = ScheduleSpec(name="s", agent="clerk", task="{{ count }} {{ tick.date() }}", every=100)
        decided = await evaluator.decide(new_schedule(spec, NOW), NOW + 100, False)
        assert [start.task for start in decided.starts] == ["1 2026-03-01"]
        assert (await evaluator.decide(decided, NOW + 150, False)).ticks == 1
        wrong = ScheduleSpec(name="s", agent="clerk", task="{{ nothing }}", every=100)
        failed = await evaluator.decide(new_schedule(wrong, NOW), NOW + 100, False)
        assert [one.outcome for one in failed.outcomes] == ["failed"]
    finally:
        await evaluator.close()


async def test_one_that_takes_too_long_is_ended_and_the_next_is_answered() -> None:
    evaluator = Evaluator()
    try:
        assert await evaluator.task_for(TRIGGER, b'{"item": "a"}', "m1", "orders") == "A orders"
        assert evaluator._process is not None
        stopped = evaluator._process
        os.kill(stopped.pid, signal.SIGSTOP)
        evaluator.seconds = 0.2
        with pytest.raises(EvaluationEnded):
            await evaluator.task_for(TRIGGER, b'{"item": "b"}', "m2", "orders")
        assert stopped.returncode == -signal.SIGKILL
        evaluator.seconds = 60.0
        assert await evaluator.task_for(TRIGGER, b'{"item": "c"}', "m3", "orders") == "C orders"
    finally:
        await evaluator.close()


async def test_what_is_given_up_needs_no_process() -> None:
    evaluator = Evaluator(seconds=0.0)
    spec = ScheduleSpec(name="s", agent="clerk", task="{{ count }}", every=100)
    decided = await evaluator.decide(new_schedule(spec, NOW), NOW + 100, False, "it never ends")
    assert (decided.starts, decided.given_up) == ([], [NOW + 100])
    assert evaluator._process is None
