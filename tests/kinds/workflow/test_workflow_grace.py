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
from kinds.workflow.test_workflow_runs import end_of, error_of
from unit.loop.build import SimulatedRun, cancel, kinds, only, result, sent, sound, timer

PAY: dict[str, Any] = {
    "pay": {"tool": {"name": "add", "arguments": {"a": 2, "b": 1}}, "undo": "back", "next": "told"},
    "back": {"tool": {"name": "add", "arguments": {"a": 1, "b": 1}}},
}
TOLD = {"tool": {"name": "look", "arguments": {"at": "{{ task }}"}}}
ASKED = {"ask": {"prompt": "Enough?"}}
WAITS = {"wait": {"signal": "shipped"}}
DEADLINE = 200.0


def paid(told: dict[str, Any], **task: Any) -> SimulatedRun:
    """A run that has paid, and is at the step `told`."""
    sim = run_of(workflow("pay", **PAY, told=told), **task)
    sim.arrive(result(sim.id(), 3))
    return sim


@pytest.mark.parametrize(
    "told", [TOLD, WAITS, ASKED, {"approve": {"question": "Go on?"}}, {"agent": {"name": "kid", "task": "T"}}]
)
def test_whatever_it_is_at_its_deadline_what_was_done_is_made_up_for(told: dict[str, Any]) -> None:
    sim = paid(told, deadline=DEADLINE)
    sim.at = DEADLINE
    before = sim.run.entries
    events = sim.arrive(timer("deadline"))
    assert kinds(events)[0] == "GraceStarted"
    assert entered(sim) == ["pay", "told", "back"]
    (call,) = sent(sim, ToolCall, before + 1)
    assert call.deadline is not None
    assert DEADLINE < call.deadline <= DEADLINE + GRACE_SECONDS, "its executor takes it"
    (grace,) = [one for one in sim.owed(before + 1) if isinstance(one, SetTimer) and one.timer.name == "grace"]
    assert grace.due == DEADLINE + GRACE_SECONDS
    sim.at += 3
    sim.arrive(result(sim.id(), 2))
    end = end_of(sim)
    assert end.error is not None
    assert (end.state, end.error.code, end.error.not_undone) == ("error", "deadline", ())
    sound(sim)


def test_a_used_up_budget_leaves_room_to_make_up_for_what_was_done_with_a_model_too() -> None:
    steps = {**PAY, "back": {"ask": {"prompt": "Write an apology."}, "next": "sent"}, "sent": PAY["back"]}
    sim = run_of(workflow("first", first={**ASKED, "next": "pay"}, **steps, told=ASKED), budget=Budget(tokens=5))
    sim.say(content="Yes.")
    events = sim.arrive(result(sim.id(), 3))
    assert only(events, ev.GraceStarted).error.type == "BudgetExceeded"
    assert kinds(events)[-1] == "ModelCalled", "the apology"
    sim.say(content="Sorry.")
    sim.arrive(result(sim.id(), 2))
    assert entered(sim) == ["first", "pay", "told", "back", "sent"]
    assert error_of(sim).type == "BudgetExceeded"
    sound(sim)


def test_a_kept_signal_ends_a_wait_of_the_steps_that_make_up_for_others() -> None:
    steps = {**PAY, "back": {"wait": {"signal": "stopped"}}}
    sim = run_of(workflow("first", first={**ASKED, "next": "pay"}, **steps, told=ASKED), budget=Budget(tokens=5))
    sim.say(content="Yes.")
    sim.arrive(Signal(id="s1", tree="r1", run="r1", at=2.0, name="stopped"))
    sim.arrive(result(sim.id(), 3))
    assert error_of(sim).type == "BudgetExceeded"
    sound(sim)


def test_behind_the_grace_the_run_ends_and_names_what_is_left() -> None:
    sim = paid(TOLD, deadline=DEADLINE)
    sim.at = DEADLINE
    sim.arrive(timer("deadline"))
    sim.arrive(timer("deadline"), cause="again")
    assert sim.run.result is None, "a timer that comes late ends nothing"
    sim.at += GRACE_SECONDS
    sim.arrive(timer("grace"))
    error = error_of(sim)
    assert (error.type, error.not_undone) == ("DeadlineExceeded", ("pay",))
    sound(sim)


def test_a_deadline_amid_making_up_for_a_failure_lets_it_go_on() -> None:
    sim = paid(TOLD, deadline=DEADLINE)
    sim.arrive(result(sim.id(), None, tool="look", error=ErrorInfo("tool-failed", "gone")))
    sim.at = DEADLINE
    assert kinds(sim.arrive(timer("deadline"))) == ["GraceStarted"]
    sim.arrive(result(sim.id(), 2))
    assert holds(error_of(sim).message, "'told'", "gone")
    sound(sim)


def test_a_cancel_in_the_grace_changes_nothing_until_it_says_now() -> None:
    sim = paid(TOLD, deadline=DEADLINE)
    sim.at = DEADLINE
    sim.arrive(timer("deadline"))
    sim.arrive(cancel("c1"))
    assert sim.run.result is None, "a run above may have the same deadline, and gives up its parts"
    assert kinds(sim.arrive(cancel("c2"))) == ["CancelRequested"]
    sim.arrive(cancel("c3", now=True))
    assert (end_of(sim).state, error_of(sim).not_undone) == (
        "cancelled",
        ("pay",),
    )
    sound(sim)


def test_a_run_that_has_done_nothing_to_undo_ends_at_once() -> None:
    sim = run_of(workflow("told", told=TOLD), "x", deadline=DEADLINE)
    sim.at = DEADLINE
    assert kinds(sim.arrive(timer("deadline"))) == ["RunFinished"]


def test_templates_that_take_all_work_of_a_decision_end_the_run_with_an_error() -> None:
    dear = "{% for i in range(20000) %}{% endfor %}"
    arguments = {"at": [f"{dear}{n}" for n in range(20)]}
    again = {"tool": {"name": "look", "arguments": arguments}}
    sim = run_of(workflow("seen", seen={**TOLD, "next": "again"}, again=again))
    sim.arrive(result(sim.id(), 1, tool="look"))
    assert error_of(sim).type == "ExpressionError"
