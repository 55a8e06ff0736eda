"""A run ends that lets its code make calls, or have bytes stored, beyond what it may in all its blocks."""

from typing import Any

import pytest

from cadre.journal import events as ev
from cadre.kinds.code.section import CodeSpec
from cadre.kinds.plan.section import PlanSpec
from cadre.protocol.code import CodeLimits
from cadre.protocol.usage import Budget, Usage
from cadre.spec.agent import Limits
from cadre.spec.kinds import sections
from kinds.code.build import ANSWER_WITH_CODE, asks, begun, code_call, coder, ended, yielded
from unit.loop.build import SimulatedRun, kinds, only, report, result

MEGABYTE = 1 << 20


def _calls(sim: SimulatedRun, count: int, **fields: Any) -> list[Any]:
    return sim.arrive(yielded(*[asks("look", at=str(n)) for n in range(count)], **fields))


def test_calls_of_all_blocks_count() -> None:
    sim = begun(limits=Limits(calls=3))
    assert kinds(_calls(sim, 2)) == ["BlockYielded", "ToolCalled", "ToolCalled"]
    for number in range(2):
        sim.arrive(result(f"r1_1_{number}", "x"))
    sim.arrive(ended(exchange=1))
    sim.say(content=ANSWER_WITH_CODE)
    events = _calls(sim, 2, block="r1:code:2")
    assert kinds(events) == ["BlockYielded", "RunFinished"]
    error = only(events, ev.RunFinished).error
    assert error is not None
    assert (error.type, "3 calls" in error.message) == ("BudgetExceeded", True)


@pytest.mark.parametrize("by_calls", [True, False])
def test_bytes_count_whatever_they_were_stored_for(by_calls: bool) -> None:
    sim = begun(limits=Limits(stored_mb=2))
    sim.arrive(yielded(asks("look", at="a"), stored=MEGABYTE))
    sim.arrive(result("r1_1_0", "x"))
    if by_calls:
        events = sim.arrive(yielded(asks("look", at="b"), exchange=1, stored=MEGABYTE + 1))
    else:
        events = sim.arrive(ended(exchange=1, stored=MEGABYTE + 1))
    assert kinds(events)[-1] == "RunFinished"
    assert "2 MB" in str(only(events, ev.RunFinished).error)


def test_an_answer_counts_that_is_the_last_thing_stored() -> None:
    sim = begun(limits=Limits(stored_mb=1))
    sim.arrive(ended(output=1, text="1", is_final_answer=True, stored=2 * MEGABYTE))
    assert sim.run.result is not None
    assert sim.run.result.state == "success"


def test_members_have_their_share_of_what_code_may_use() -> None:
    sim = begun(limits=Limits(calls=12, stored_mb=8), team=["kid"])
    ask = [asks("kid", task="a"), asks("kid", task="b")]
    events = sim.arrive(yielded(*ask, stored=2 * MEGABYTE))
    given = [event.budget for event in events if isinstance(event, ev.DelegateStarted)]
    assert given == [Budget(calls=5, stored_mb=3.0)] * 2
    used = Usage(calls=5, stored_bytes=3 * MEGABYTE)
    sim.arrive(report("r1_1_0", "x", usage=used))
    sim.arrive(report("r1_1_1", "x", usage=Usage(calls=2)))
    # 2 itself, 7 of its members: 3 are left.
    assert kinds(_calls(sim, 3, exchange=1)) == ["BlockYielded", *["ToolCalled"] * 3]
    for number in range(2, 5):
        sim.arrive(result(f"r1_1_{number}", "x"))
    end = only(_calls(sim, 1, exchange=2), ev.RunFinished)
    assert end.error is not None
    assert "12 calls" in end.error.message
    assert (end.usage.calls, end.usage.stored_bytes) == (13, 5 * MEGABYTE)


def test_a_plan_carried_out_is_bounded_with_all_its_steps() -> None:
    sim = coder(limits=Limits(calls=7), **sections(PlanSpec(execute=True))).begin()
    assert sim.run.budget == Budget(calls=7, stored_mb=Limits().stored_mb)


def test_a_block_may_have_a_time_from_its_beginning_to_its_end() -> None:
    sim = begun(**sections(CodeSpec(limits=CodeLimits(wall_seconds=60))))
    first = code_call(sim).deadline
    sim.arrive(yielded(asks("look", at="a")))
    sim.arrive(result("r1_1_0", "x"))
    assert first == code_call(sim, sim.run.entries).deadline
    assert first is not None
    assert code_call(begun()).deadline is None
