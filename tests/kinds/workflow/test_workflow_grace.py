"""Workflows beyond their deadline or budget: what was done is made up for in a grace, and then they end."""

from typing import Any

import pytest

from cadre.engine.budget import GRACE_SECONDS
from cadre.engine.commands import SetTimer
from cadre.journal import events as ev
from cadre.protocol.messages import ErrorInfo, Signal, ToolCall
from cadre.protocol.usage import Budget
from harness.texts import holds
from kinds.workflow.built import entered, run_of, workflow
from kinds.workflow.test_workflow_runs import end_of
from unit.loop.build import Course, cancel, kinds, only, result, sent, sound, timer

PAY: dict[str, Any] = {
    "pay": {"tool": {"name": "add", "arguments": {"a": 2, "b": 1}}, "undo": "back", "next": "told"},
    "back": {"tool": {"name": "add", "arguments": {"a": 1, "b": 1}}},
}
TOLD = {"tool": {"name": "look", "arguments": {"at": "{{ task }}"}}}
ASKED = {"ask": {"prompt": "Enough?"}}
WAITS = {"wait": {"signal": "shipped"}}
DEADLINE = 200.0


def paid(told: dict[str, Any], **task: Any) -> Course:
    """A run that has paid, and is at the step `told`."""
    course = run_of(workflow("pay", **PAY, told=told), **task)
    course.arrive(result(course.id(), 3))
    return course


@pytest.mark.parametrize(
    "told", [TOLD, WAITS, ASKED, {"approve": {"question": "Go on?"}}, {"agent": {"name": "kid", "task": "T"}}]
)
def test_whatever_it_is_at_its_deadline_what_was_done_is_made_up_for(told: dict[str, Any]) -> None:
    course = paid(told, deadline=DEADLINE)
    course.at = DEADLINE
    before = course.run.entries
    events = course.arrive(timer("deadline"))
    assert kinds(events)[0] == "GraceStarted"
    assert entered(course) == ["pay", "told", "back"]
    (call,) = sent(course, ToolCall, before + 1)
    assert call.deadline is not None
    assert DEADLINE < call.deadline <= DEADLINE + GRACE_SECONDS, "its executor takes it"
    (grace,) = [
        one for one in course.owed(before + 1) if isinstance(one, SetTimer) and one.timer.name == "grace"
    ]
    assert grace.due == DEADLINE + GRACE_SECONDS
    course.at += 3
    course.arrive(result(course.id(), 2))
    end = end_of(course)
    assert end.error is not None
    assert (end.state, end.error.code, end.error.not_undone) == ("error", "deadline", ())
    sound(course)


def test_a_used_up_budget_leaves_room_to_make_up_for_what_was_done_with_a_model_too() -> None:
    steps = {**PAY, "back": {"ask": {"prompt": "Write an apology."}, "next": "sent"}, "sent": PAY["back"]}
    course = run_of(
        workflow("first", first={**ASKED, "next": "pay"}, **steps, told=ASKED), budget=Budget(tokens=5)
    )
    course.say(content="Yes.")
    events = course.arrive(result(course.id(), 3))
    assert only(events, ev.GraceStarted).error.type == "BudgetExceeded"
    assert kinds(events)[-1] == "ModelCalled", "the apology"
    course.say(content="Sorry.")
    course.arrive(result(course.id(), 2))
    assert entered(course) == ["first", "pay", "told", "back", "sent"]
    assert (end_of(course).error or ErrorInfo("cancelled", "")).type == "BudgetExceeded"
    sound(course)


def test_a_kept_signal_ends_a_wait_of_the_steps_that_make_up_for_others() -> None:
    steps = {**PAY, "back": {"wait": {"signal": "stopped"}}}
    course = run_of(
        workflow("first", first={**ASKED, "next": "pay"}, **steps, told=ASKED), budget=Budget(tokens=5)
    )
    course.say(content="Yes.")
    course.arrive(Signal(id="s1", tree="r1", run="r1", at=2.0, name="stopped"))
    course.arrive(result(course.id(), 3))
    assert (end_of(course).error or ErrorInfo("cancelled", "")).type == "BudgetExceeded"
    sound(course)


def test_behind_the_grace_the_run_ends_and_names_what_is_left() -> None:
    course = paid(TOLD, deadline=DEADLINE)
    course.at = DEADLINE
    course.arrive(timer("deadline"))
    course.arrive(timer("deadline"), cause="again")
    assert course.run.result is None, "a timer that comes late ends nothing"
    course.at += GRACE_SECONDS
    course.arrive(timer("grace"))
    error = end_of(course).error or ErrorInfo("cancelled", "")
    assert (error.type, error.not_undone) == ("DeadlineExceeded", ("pay",))
    sound(course)


def test_a_deadline_amid_making_up_for_a_failure_lets_it_go_on() -> None:
    course = paid(TOLD, deadline=DEADLINE)
    course.arrive(result(course.id(), None, tool="look", error=ErrorInfo("tool-failed", "gone")))
    course.at = DEADLINE
    assert kinds(course.arrive(timer("deadline"))) == ["GraceStarted"]
    course.arrive(result(course.id(), 2))
    assert holds((end_of(course).error or ErrorInfo("cancelled", "")).message, "'told'", "gone")
    sound(course)


def test_a_cancel_in_the_grace_changes_nothing_until_it_says_now() -> None:
    course = paid(TOLD, deadline=DEADLINE)
    course.at = DEADLINE
    course.arrive(timer("deadline"))
    course.arrive(cancel("c1"))
    assert course.run.result is None, "a run above may have the same deadline, and gives up its parts"
    assert kinds(course.arrive(cancel("c2"))) == ["CancelRequested"]
    course.arrive(cancel("c3", now=True))
    assert (end_of(course).state, (end_of(course).error or ErrorInfo("cancelled", "")).not_undone) == (
        "cancelled",
        ("pay",),
    )
    sound(course)


def test_a_run_that_has_done_nothing_to_undo_ends_at_once() -> None:
    course = run_of(workflow("told", told=TOLD), "x", deadline=DEADLINE)
    course.at = DEADLINE
    assert kinds(course.arrive(timer("deadline"))) == ["RunFinished"]


def test_templates_that_take_all_work_of_a_decision_end_the_run_with_an_error() -> None:
    dear = "{% for i in range(20000) %}{% endfor %}"
    arguments = {"at": [f"{dear}{n}" for n in range(20)]}
    again = {"tool": {"name": "look", "arguments": arguments}}
    course = run_of(workflow("seen", seen={**TOLD, "next": "again"}, again=again))
    course.arrive(result(course.id(), 1, tool="look"))
    error = end_of(course).error
    assert error is not None
    assert error.type == "ExpressionError"
