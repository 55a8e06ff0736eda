"""Variables that no sandbox can restore are given up once, not in every block that follows."""

from __future__ import annotations

from cadre.protocol.messages import ErrorInfo
from unit.loop.build import task
from unit.loop.test_code import SAID, begun, code_call, coder, ended


def test_variables_that_are_lost_are_not_asked_for_again() -> None:
    """A sandbox that cannot restore them says that none is left: the next block must not meet the same trouble."""
    course = begun()
    course.arrive(ended(snapshot="blob:aa"))
    course.say(content=SAID)
    assert (code_call(course).snapshot, code_call(course).variables) == ("blob:aa", {})
    error = ErrorInfo("AgentExecutionError", "The variables of earlier code could not be restored.")
    course.arrive(ended(block="r1:code:2", error=error, snapshot=None))
    course.say(content=SAID)
    assert code_call(course).snapshot is None
    assert code_call(course).variables == {"limit": 3}, "what the task came with is given anew"


def test_variables_of_an_earlier_run_that_are_lost_leave_the_tasks_own() -> None:
    first = begun()
    first.arrive(ended(snapshot="blob:aa"))
    first.say(content="I have no block of code.")
    second = coder()
    second.arrive(task(additional_args={"limit": 4}), history=first.run.steps)
    second.say(content=SAID)
    assert (code_call(second).snapshot, code_call(second).variables) == ("blob:aa", {"limit": 4})
    error = ErrorInfo("AgentExecutionError", "The variables of earlier code could not be restored.")
    second.arrive(ended(block=code_call(second).block, error=error, snapshot=None))
    second.say(content=SAID)
    assert (code_call(second).snapshot, code_call(second).variables) == (None, {"limit": 4})


def test_a_session_does_not_go_on_with_variables_that_are_lost() -> None:
    first = begun()
    first.arrive(ended(snapshot="blob:aa"))
    first.say(content=SAID)
    first.arrive(ended(block="r1:code:2", error=ErrorInfo("AgentExecutionError", "lost"), snapshot=None))
    first.say(content="I have no block of code.")
    second = coder()
    second.arrive(task(), history=first.run.steps)
    second.say(content=SAID)
    assert code_call(second).snapshot is None
