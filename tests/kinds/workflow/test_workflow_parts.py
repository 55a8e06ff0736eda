"""Parts of a workflow as runs of their own, and what makes up for steps that were done."""

from typing import Any

import msgspec
import pytest

from cadre.delivery.worker import impersonation
from cadre.journal.arrivals import Poisoned
from cadre.kinds.workflow.section import workflow_of
from cadre.loop.rebase import TeamFiles, rebase
from cadre.loop.redecide import Journaled, redecide
from cadre.protocol.messages import ErrorInfo, ReplyTo, Report, Signal, Task
from cadre.protocol.usage import Budget, Usage
from cadre.spec.agent import AgentSpec
from harness.texts import holds
from kinds.workflow.built import decide, entered, run_of, workflow
from kinds.workflow.test_workflow_runs import LOOK, end_of, error_of
from unit.loop.build import SimulatedRun, cancel, kinds, report, result, sent, sound

GONE = ErrorInfo("tool-failed", "gone")
EACH: dict[str, Any] = {
    "seen": {**LOOK, "next": "all"},
    "all": {"each": {"items": "{{ seen.numbers }}", "step": "one", "parallel": 2}, "next": "done"},
    "one": {"tool": {"name": "add", "arguments": {"a": "{{ item }}", "b": "{{ seen.plus }}"}}},
    "done": {"end": "{{ all }}"},
}
BOTH: dict[str, Any] = {
    "both": {"parallel": {"branches": {"left": "look", "right": "sum"}}, "next": "done"},
    "look": LOOK,
    "sum": {"tool": {"name": "add", "arguments": {"a": 1, "b": 2}}, "next": "twice"},
    "twice": {"end": "{{ sum * 2 }}"},
    "done": {"end": "{{ both }}"},
}


def child_of(sim: SimulatedRun, task: Task) -> SimulatedRun:
    """The course of the run that a task of this one begins."""
    child = SimulatedRun(sim.spec, sim.toolset, task.run)
    child.arrive(task)
    return child


def reported(child: SimulatedRun) -> Report:
    """Its report, as the parent gets it."""
    return next(iter(sent(child, Report)))


def test_each_item_is_a_run_and_the_results_have_the_items_order() -> None:
    sim = run_of(workflow("seen", **EACH))
    sim.arrive(result(sim.id(), {"numbers": [5, 6, 7], "plus": 10}, tool="look"))
    tasks = sent(sim, Task)
    assert [(task.agent, task.inputs["item"]) for task in tasks] == [("boss", 5), ("boss", 6)]
    children = [child_of(sim, task) for task in tasks]
    assert children[1].run.open_calls()[0].arguments == {"a": 6, "b": 10}
    assert list(workflow_of(children[1].run.spec).steps) == ["one"]
    for child, value in zip(reversed(children), (16, 15), strict=True):
        child.arrive(result(child.id(), value))
        sim.arrive(reported(child))
    third = child_of(sim, sent(sim, Task)[-1])
    third.arrive(result(third.id(), 17))
    sim.arrive(reported(third))
    assert end_of(sim).output == [15, 16, 17]
    assert sim.run.usage.steps == 3 + 3
    for one in (sim, *children, third):
        sound(one)


def test_an_empty_list_is_a_result_at_once() -> None:
    sim = run_of(workflow("seen", **EACH))
    sim.arrive(result(sim.id(), {"numbers": [], "plus": 1}, tool="look"))
    assert end_of(sim).output == []
    sound(sim)


def test_an_empty_list_is_a_result_behind_a_wait() -> None:
    steps = {
        "seen": {**LOOK, "next": "all"},
        "all": {"each": {"items": "{{ seen.numbers }}", "step": "one"}, "next": "ask"},
        "one": {"tool": {"name": "add", "arguments": {"a": 1, "b": 2}}},
        "ask": {"approve": {"question": "Go on?", "yes": "done", "no": "done"}},
        "done": {"end": "{{ all }}"},
    }
    sim = run_of(workflow("seen", **steps))
    sim.arrive(result(sim.id(), {"numbers": []}, tool="look"))
    decide(sim, "approved")
    assert end_of(sim).output == []
    sound(sim)


def test_the_value_of_an_end_among_what_is_made_up_for_is_there_behind_a_wait() -> None:
    steps = {
        "first": {**LOOK, "undo": "back", "next": "second"},
        "second": {**LOOK, "undo": "count", "next": "third"},
        "third": {"end": {"error": "No more."}},
        "count": {"end": "{{ 6 * 7 }}"},
        "back": {"approve": {"question": "{{ count }}?", "yes": "told", "no": "told"}},
        "told": {"tool": {"name": "add", "arguments": {"a": "{{ count }}", "b": 1}}},
    }
    sim = run_of(workflow("first", **steps))
    sim.arrive(result(sim.id(), "here", tool="look"))
    sim.arrive(result(sim.id(), "there", tool="look"))
    hold = sim.run.open_calls()[0].hold
    assert hold is not None
    assert hold.reason == "42?"
    decide(sim, "approved")
    (call,) = sim.run.open_calls()
    assert call.arguments == {"a": 42, "b": 1}
    sound(sim)


def test_parts_that_begin_with_the_task_share_the_budget_of_the_run() -> None:
    sim = run_of(workflow("both", **BOTH), budget=Budget(tokens=1_000))
    assert [call.budget for call in sim.run.open_calls()] == [Budget(tokens=500), Budget(tokens=500)]
    sim.arrive(report(sim.id(), "1", agent="boss", usage=Usage(input_tokens=400)))
    assert sim.run.usage.total_tokens == 400
    sound(sim)


def test_a_part_that_begins_later_gets_its_share_of_what_is_left_now() -> None:
    agent = workflow("seen", **EACH)
    sim = run_of(agent, budget=Budget(tokens=1_000))
    sim.arrive(result(sim.id(), {"numbers": [5, 6, 7], "plus": 10}, tool="look"))
    assert [call.budget for call in sim.run.open_calls()] == [Budget(tokens=500), Budget(tokens=500)]
    sim.arrive(report(sim.id(), "1", agent="boss", usage=Usage(input_tokens=400)))
    assert sim.run.open_calls()[-1].budget == Budget(tokens=100)
    sound(sim)


def test_an_item_that_fails_ends_the_step_and_the_others_are_told() -> None:
    sim = run_of(workflow("seen", **EACH))
    sim.arrive(result(sim.id(), {"numbers": [5, 6, 7], "plus": 10}, tool="look"))
    events = sim.arrive(report(sim.id(), "", "error", agent="boss", error=GONE))
    assert kinds(events)[:3] == ["DelegateFinished", "CallDropped", "WorkflowStepFinished"]
    assert "1 of 3 have failed" in error_of(sim).message
    assert [one.call for one in sim.run.revoked] == [sim.id(1)]
    sound(sim)


def test_some_items_may_fail_where_the_step_says_so() -> None:
    steps = {**EACH, "all": {"each": {"items": [1, 2], "step": "one", "need": 1}, "next": "done"}}
    sim = run_of(workflow("seen", **steps))
    sim.arrive(result(sim.id(), {"plus": 1}, tool="look"))
    sim.arrive(report(sim.id(), "", "error", agent="boss", error=GONE))
    sim.arrive(report(sim.id(1), "3", agent="boss"))
    assert end_of(sim).output == [None, "3"]
    sound(sim)


def test_branches_run_side_by_side_and_have_their_own_ends() -> None:
    sim = run_of(workflow("both", **BOTH), "the sky")
    left, right = (child_of(sim, task) for task in sent(sim, Task))
    assert left.run.open_calls()[0].arguments == {"at": "the sky"}
    right.arrive(result(right.id(), 3))
    left.arrive(result(left.id(), "blue", tool="look"))
    sim.arrive(reported(right))
    sim.arrive(reported(left))
    assert end_of(sim).output == {"left": "blue", "right": 6}
    sound(sim)


def test_the_first_branches_are_enough_and_the_rest_is_dropped() -> None:
    steps = {**BOTH, "both": {"parallel": {**BOTH["both"]["parallel"], "need": 1}, "next": "done"}}
    sim = run_of(workflow("both", **steps))
    call = sim.id()
    sim.arrive(report(sim.id(1), "6", agent="boss"))
    assert end_of(sim).output == {"left": None, "right": "6"}
    assert [one.call for one in sim.run.revoked] == [call]
    sound(sim)


def test_parts_are_bounded_by_depth() -> None:
    steps: dict[str, Any] = {
        "both": {"parallel": {"branches": {"again": "inner"}}},
        "inner": {**BOTH["both"]},
    }
    steps = {
        "both": {"parallel": {"branches": {"again": "deeper"}}},
        "deeper": {"each": {"items": [1], "step": "both"}},
    }
    sim = run_of(workflow("both", **steps))
    for _ in range(8):
        sim = child_of(sim, sent(sim, Task)[0])
    assert error_of(sim).code == "invalid-call"
    assert sim.run.spec is not None
    assert holds(error_of(sim).message, f"limit is {sim.run.spec.limits.depth}", "boss > boss")


def test_nobody_else_may_say_what_part_an_agent_does() -> None:
    task = sent(run_of(workflow("both", **BOTH)), Task)[0]
    assert impersonation(task, "boss") is None
    theirs = msgspec.structs.replace(task, reply_to=ReplyTo(agent="kid", run="r1"))
    assert holds(impersonation(theirs, "kid") or "", "'boss'", "'kid'")


UNDO: dict[str, Any] = {
    "book": {**LOOK, "undo": "unbook", "next": "pay"},
    "pay": {**LOOK, "undo": "repay", "next": "send"},
    "send": LOOK,
    "unbook": {"tool": {"name": "look", "arguments": {"at": "unbook {{ undone.result }}"}}},
    "repay": {"tool": {"name": "look", "arguments": {"at": "repay {{ undone.result }} {{ error.step }}"}}},
}


def booked_and_paid() -> SimulatedRun:
    sim = run_of(workflow("book", **UNDO))
    sim.arrive(result(sim.id(), "seat 4", tool="look"))
    sim.arrive(result(sim.id(), "30 EUR", tool="look"))
    return sim


def asked(sim: SimulatedRun) -> Any:
    return sim.run.open_calls()[0].arguments["at"]


def test_what_was_done_is_made_up_for_in_reverse_order() -> None:
    sim = booked_and_paid()
    events = sim.arrive(result(sim.id(), error=GONE, tool="look"))
    assert kinds(events)[1:4] == ["WorkflowStepFinished", "UndoBegun", "StepFinished"]
    assert asked(sim) == "repay 30 EUR send"
    sim.arrive(result(sim.id(), "ok", tool="look"))
    assert asked(sim) == "unbook seat 4"
    sim.arrive(result(sim.id(), "ok", tool="look"))
    end = end_of(sim)
    assert (end.state, (end.error or GONE).message) == ("error", "Step 'send' has failed: gone")
    assert entered(sim) == ["book", "pay", "send", "repay", "unbook"]
    sound(sim)


def test_what_cannot_be_made_up_for_is_said_and_the_rest_goes_on() -> None:
    sim = booked_and_paid()
    sim.arrive(result(sim.id(), error=GONE, tool="look"))
    sim.arrive(result(sim.id(), error=GONE, tool="look"))
    assert asked(sim) == "unbook seat 4"
    sim.arrive(result(sim.id(), "ok", tool="look"))
    assert error_of(sim).not_undone == ("pay",)
    sound(sim)


@pytest.mark.parametrize("again", [False, True])
def test_a_cancelled_run_makes_up_for_what_it_did_however_often_it_is_cancelled(again: bool) -> None:
    sim = booked_and_paid()
    events = sim.arrive(cancel())
    assert kinds(events)[:4] == ["CancelRequested", "CallDropped", "UndoBegun", "StepFinished"]
    assert asked(sim) == "repay 30 EUR "
    if again:
        assert kinds(sim.arrive(cancel("c2", reason="once more"))) == ["CancelRequested"]
    sim.arrive(result(sim.id(), "ok", tool="look"))
    sim.arrive(result(sim.id(), "ok", tool="look"))
    end = end_of(sim)
    assert (end.state, (end.error or GONE).message) == ("cancelled", "enough")
    assert len(entered(sim)) == 5
    sound(sim)


def test_the_end_at_once_names_what_is_not_undone() -> None:
    sim = booked_and_paid()
    sim.arrive(cancel("c1", now=True))
    end = end_of(sim)
    assert (end.state, (end.error or GONE).type, (end.error or GONE).not_undone) == (
        "cancelled",
        "Cancelled",
        ("pay", "book"),
    )
    sound(sim)


@pytest.mark.parametrize("then", ["now", "poisoned"])
def test_the_end_amid_making_up_for_things_names_the_rest(then: str) -> None:
    sim = booked_and_paid()
    sim.arrive(cancel())
    sim.arrive(result(sim.id(), "ok", tool="look"))
    assert asked(sim) == "unbook seat 4"
    sim.arrive(cancel("c2", now=True) if then == "now" else Poisoned(id="p", deliveries=3))
    assert error_of(sim).not_undone == ("book",)
    sound(sim)


def test_a_cancel_amid_making_up_for_a_failure_lets_it_go_on() -> None:
    sim = booked_and_paid()
    sim.arrive(result(sim.id(), error=GONE, tool="look"))
    assert kinds(sim.arrive(cancel())) == ["CancelRequested"]
    sim.arrive(result(sim.id(), "ok", tool="look"))
    sim.arrive(result(sim.id(), "ok", tool="look"))
    assert (end_of(sim).state, error_of(sim).not_undone) == ("error", ())
    sound(sim)


@pytest.mark.parametrize("how", ["cancelled", "interrupted"])
def test_a_step_that_may_have_taken_effect_is_named_as_not_undone(how: str) -> None:
    agent = workflow(
        "book",
        book={**LOOK, "undo": "unbook", "next": "pay"},
        pay={**LOOK, "undo": "repay"},
        repay=LOOK,
        unbook=LOOK,
    )
    sim = run_of(agent)
    sim.arrive(result(sim.id(), "seat 4", tool="look"))
    if how == "cancelled":
        sim.arrive(cancel())
    else:
        lost = ErrorInfo("interrupted", "outcome unknown")
        sim.arrive(result(sim.id(), error=lost, tool="look"))
    sim.arrive(result(sim.id(), "ok", tool="look"))
    assert entered(sim) == ["book", "pay", "unbook"]
    assert error_of(sim).not_undone == ("pay",)
    sound(sim)


def test_a_way_that_is_taken_by_another_condition_is_the_same_way() -> None:
    """Of kept runs that are decided by files with another limit, those that go on as they did are no news."""

    def with_limit(limit: int) -> AgentSpec:
        return workflow(
            "seen",
            seen={**LOOK, "next": "way"},
            way={"choose": [{"if": f"seen > {limit}", "next": "much"}, {"if": "true", "next": "little"}]},
            much={"end": "much"},
            little={"end": "little"},
        )

    sim = run_of(with_limit(10))
    sim.arrive(result(sim.id(), 50, tool="look"))
    journal = [Journaled(n, entry) for n, entry in enumerate(sim.journal(), start=1)]

    def told(limit: int) -> str:
        rebased = rebase(journal, TeamFiles({"boss": with_limit(limit)}, []))
        replay = redecide([rebased], decisions_only=True)
        return "\n".join(line for one in replay.divergences for line in one.lines)

    assert told(20) == ""
    assert 'workflow.step_finished.next: journaled "much", now "little"' in told(60)


def test_a_signal_for_a_step_that_was_given_up_does_not_end_the_step_that_makes_up_for_another() -> None:
    sim = run_of(
        workflow(
            "sum",
            sum={"tool": {"name": "add", "arguments": {"a": 2, "b": 1}}, "undo": "back", "next": "paid"},
            paid={"wait": {"signal": "paid"}},
            back={"tool": {"name": "add", "arguments": {"a": 1, "b": 1}}},
        )
    )
    sim.arrive(result(sim.id(), 42))
    sim.arrive(cancel())
    call = sim.id()
    sim.arrive(Signal(id="s1", tree="r1", run="r1", at=2.0, name="paid", payload=1, sender="till"))
    assert sim.run.result is None, "the call of the step `back` is still awaited"
    sim.arrive(result(call, 2))
    assert end_of(sim).state == "cancelled"
    sound(sim)
