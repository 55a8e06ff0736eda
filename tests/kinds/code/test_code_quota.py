"""A run ends that lets its code make calls, or have bytes stored, beyond what it may in all its blocks."""

from typing import Any

import pytest

from cadre.journal import events as ev
from cadre.spec.agent import Limits
from kinds.code.build import ANSWER_WITH_CODE, asks, begun, ended, yielded
from unit.loop.build import Course, kinds, only, result

MEGABYTE = 1 << 20


def _calls(course: Course, count: int, **fields: Any) -> list[Any]:
    return course.arrive(yielded(*[asks("look", at=str(n)) for n in range(count)], **fields))


def test_calls_of_all_blocks_count() -> None:
    course = begun(limits=Limits(calls=3))
    assert kinds(_calls(course, 2)) == ["BlockYielded", "ToolCalled", "ToolCalled"]
    for number in range(2):
        course.arrive(result(f"r1_1_{number}", "x"))
    course.arrive(ended(exchange=1))
    course.say(content=ANSWER_WITH_CODE)
    events = _calls(course, 2, block="r1:code:2")
    assert kinds(events) == ["BlockYielded", "RunFinished"]
    error = only(events, ev.RunFinished).error
    assert error is not None
    assert (error.type, "3 calls" in error.message) == ("BudgetExceeded", True)


@pytest.mark.parametrize("by_calls", [True, False])
def test_bytes_count_whatever_they_were_stored_for(by_calls: bool) -> None:
    course = begun(limits=Limits(stored_mb=2))
    course.arrive(yielded(asks("look", at="a"), stored=MEGABYTE))
    course.arrive(result("r1_1_0", "x"))
    if by_calls:
        events = course.arrive(yielded(asks("look", at="b"), exchange=1, stored=MEGABYTE + 1))
    else:
        events = course.arrive(ended(exchange=1, stored=MEGABYTE + 1))
    assert kinds(events)[-1] == "RunFinished"
    assert "2 MB" in str(only(events, ev.RunFinished).error)


def test_an_answer_counts_that_is_the_last_thing_stored() -> None:
    course = begun(limits=Limits(stored_mb=1))
    course.arrive(ended(output=1, text="1", is_final_answer=True, stored=2 * MEGABYTE))
    assert course.run.result is not None
    assert course.run.result.state == "success"
