"""Deadlines, budgets and timeouts: how far a run goes, what its children get, what it has found when it stops."""

import msgspec
import pytest

from cadre.engine.commands import Revoke, Send, SetTimer
from cadre.engine.timers import away_timer, ended, running, waits
from cadre.journal import events as ev
from cadre.journal.run import ActionStep, Phase
from cadre.protocol.messages import Cancel, Decision, ErrorInfo, Task, ToolCall, Unfinished
from cadre.protocol.usage import Budget, Usage
from cadre.spec.agent import Limits
from unit.loop.build import (
    ANSWER,
    KID,
    OFFER,
    SimulatedRun,
    call,
    cancel,
    kinds,
    only,
    report,
    result,
    sent,
    sound,
    spec,
    task,
    timer,
)


def limited(**limits: object) -> SimulatedRun:
    return SimulatedRun(spec(limits=Limits(**limits)))  # type: ignore[arg-type]


# --- deadlines


def test_a_deadline_is_a_timer_from_the_first_entry_on() -> None:
    sim = SimulatedRun().begin(deadline=500.0)
    wait = next(command for command in sim.owed() if isinstance(command, SetTimer))
    assert (wait.due, wait.timer.name, wait.timer.id) == (500.0, "deadline", "r1:deadline")


@pytest.mark.parametrize(("of_task", "seconds", "due"), [(None, 50, 150), (120, 50, 120), (500, 50, 150)])
def test_the_earlier_deadline_counts(of_task: float | None, seconds: float, due: float) -> None:
    sim = limited(seconds=seconds).begin(deadline=of_task)
    assert sim.run.deadline == due


def test_at_the_deadline_a_run_ends_with_what_it_found() -> None:
    sim = SimulatedRun().begin(deadline=500.0)
    sim.say(call("add", a=20, b=22))
    sim.arrive(result("r1_1_0", 42))
    sim.at = 500.2
    end = only(sim.arrive(timer("deadline")), ev.RunFinished)
    assert (end.state, end.error.type) == ("error", "DeadlineExceeded")
    assert "add: 42" in end.output
    assert sim.run.phase is Phase.DONE


def test_what_the_step_under_way_has_found_counts() -> None:
    sim = SimulatedRun().begin(deadline=500.0)
    sim.say(call("add", a=20, b=22), call("add", a=1, b=1))
    sim.arrive(result("r1_1_0", 42))
    end = only(sim.arrive(timer("deadline")), ev.RunFinished)
    _, *found = end.output.splitlines()
    assert found[0] == "add: 42"
    assert [line.split(":")[0] for line in found] == ["add", "add"], "the call without a result is listed too"


def test_a_call_that_failed_has_found_nothing() -> None:
    sim = SimulatedRun().begin(deadline=500.0)
    sim.say(call("add", a=20, b=22), call("add", a=1, b=1))
    sim.arrive(result("r1_1_0", 42))
    sim.arrive(result("r1_1_1", error=ErrorInfo("tool-failed", "no")))
    [step] = [step for step in sim.run.steps if isinstance(step, ActionStep)]
    assert [(one.observation, one.error and one.error.message) for one in step.calls] == [
        ("42", None),
        (None, "no"),
    ]
    end = only(sim.arrive(timer("deadline")), ev.RunFinished)
    assert end.output.count("add:") == 1


def test_a_deadline_ends_open_calls_and_children() -> None:
    sim = SimulatedRun().begin(deadline=500.0)
    sim.say(call("kid", task="x"), call("add", a=1, b=1))
    sim.arrive(timer("deadline"))
    assert ["deadline" in cancel.reason for cancel in sent(sim, Cancel)] == [True]
    assert [type(command) for command in sim.owed()] == [Send, Revoke]


def test_children_and_calls_get_the_deadline() -> None:
    sim = SimulatedRun().begin(deadline=500.0)
    sim.say(call("kid", task="x"), call("add", a=1, b=1))
    assert [one.deadline for one in sent(sim, Task)] == [500.0]
    assert [one.deadline for one in sent(sim, ToolCall)] == [500.0]


@pytest.mark.parametrize(("of_run", "of_call"), [(500.0, 130.0), (120.0, 120.0), (None, 130.0)])
def test_a_call_is_due_at_the_earlier_of_its_own_timeout_and_the_runs_deadline(
    of_run: float | None, of_call: float
) -> None:
    sim = SimulatedRun(spec(timeouts={"add": 30})).begin(deadline=of_run)
    sim.say(call("add", a=1, b=1))
    assert [one.deadline for one in sent(sim, ToolCall)] == [of_call]


def test_a_task_that_comes_too_late_does_not_begin() -> None:
    sim = SimulatedRun()
    events = sim.arrive(task(deadline=99.0))
    assert kinds(events)[0] == "RunAccepted"
    assert only(events, ev.RunFinished).error.type == "DeadlineExceeded"
    assert sim.owed() == []


def test_the_end_removes_the_deadline_in_the_same_append() -> None:
    sim = SimulatedRun().begin(deadline=500.0)
    before = running(sim.run)
    sim.say(ANSWER)
    assert ended(before, sim.run) == "deadline"
    assert running(SimulatedRun().begin().run) == []


def test_no_model_is_asked_after_the_deadline_even_when_the_timer_is_late() -> None:
    sim = SimulatedRun().begin(deadline=500.0)
    sim.say(call("add", a=1, b=1))
    sim.at = 501.0
    events = sim.arrive(result("r1_1_0", 2))
    assert kinds(events) == ["ToolAnswered", "StepFinished", "RunFinished"]


# --- budgets


def test_tokens_are_counted_and_end_the_run_before_the_next_call() -> None:
    sim = SimulatedRun().begin(budget=Budget(tokens=25))
    sim.say(call("add", a=1, b=1), usage=Usage(10, 5))
    assert kinds(sim.arrive(result("r1_1_0", 2)))[-1] == "ModelCalled"
    sim.say(call("add", a=2, b=2), usage=Usage(10, 5))
    end = only(sim.arrive(result("r1_2_0", 4)), ev.RunFinished)
    assert end.error.type == "BudgetExceeded"
    assert "25 tokens" in end.error.message
    assert "30 were spent" in end.error.message
    assert "add: 2\nadd: 4" in end.output
    assert end.usage == Usage(20, 10, 2, steps=2)


def test_an_answer_within_the_last_call_is_an_answer() -> None:
    sim = SimulatedRun().begin(budget=Budget(tokens=5))
    assert only(sim.say(ANSWER, usage=Usage(10, 5)), ev.RunFinished).state == "success"


def test_steps_are_counted_over_the_tree() -> None:
    sim = SimulatedRun().begin(budget=Budget(steps=4))
    sim.say(call("kid", task="x"))
    end = only(sim.arrive(report("r1_1_0", "so", usage=Usage(1, 1, 1, steps=3))), ev.RunFinished)
    assert end.error.type == "BudgetExceeded"
    assert "4 steps" in end.error.message


def test_a_cost_budget_needs_prices() -> None:
    sim = SimulatedRun().begin(budget=Budget(cost=1.0))
    sim.say(call("add", a=1, b=1), usage=Usage(10, 5, cost=0.4))
    assert kinds(sim.arrive(result("r1_1_0", 2)))[-1] == "ModelCalled"
    sim.run.unpriced = "m-1"
    sim.say(call("add", a=2, b=2))
    end = only(sim.arrive(result("r1_2_0", 4)), ev.RunFinished)
    assert "m-1 costs" in end.error.message


def test_a_record_that_is_ignored_has_no_price_to_lack() -> None:
    sim = SimulatedRun().begin(budget=Budget(cost=1.0))
    assert kinds(sim.arrive(result("r1_9_9", 2))) == ["RecordIgnored"]
    assert sim.run.unpriced is None
    sim.say(ANSWER)
    assert sim.run.result is not None
    assert sim.run.result.state == "success"


def test_the_narrower_budget_counts_field_by_field() -> None:
    sim = limited(budget=Budget(tokens=100, steps=5)).begin(budget=Budget(tokens=200, cost=2.0))
    assert sim.run.budget == Budget(tokens=100, cost=2.0, steps=5)


def test_members_share_what_is_left_evenly() -> None:
    sim = SimulatedRun().begin(budget=Budget(tokens=115, cost=1.0, steps=9, depth=2))
    sim.say(call("kid", task="x"), call("kid", task="y"), call("add", a=1, b=1), usage=Usage(10, 5, cost=0.5))
    share = Budget(tokens=50, cost=0.25, steps=4, depth=1)
    assert [one.budget for one in sent(sim, Task)] == [share, share]


@pytest.mark.parametrize(("tokens", "begun"), [(2 * 400 + 15, 2), (2 * 400 + 14, 0), (400 + 14 + 15, 0)])
def test_a_member_is_not_begun_with_less_than_its_first_request_takes(tokens: int, begun: int) -> None:
    kid = msgspec.structs.replace(KID, prompt_tokens=399)
    sim = SimulatedRun(toolset=msgspec.structs.replace(OFFER, members={"kid": kid})).begin(budget=Budget(tokens=tokens))
    events = sim.say(call("kid", task="x" * 5), call("kid", task="y" * 9), usage=Usage(10, 5))
    assert len(sent(sim, Task)) == begun
    refused = [event for event in events if isinstance(event, ev.CallRefused)]
    assert [event.error.type for event in refused] == ["BudgetExceeded"] * (2 - begun)
    if refused:
        lent = (tokens - 15) // 2
        assert str(lent) in refused[0].error.message
        assert "400" in refused[0].error.message
        alone = sim.say(call("kid", task="both"), usage=Usage(5, 0))
        assert [type(event) for event in alone][1:2] == [ev.DelegateStarted if tokens > 419 else ev.CallRefused]


def test_approval_does_not_begin_a_member_with_less_than_its_first_request_takes() -> None:
    kid = msgspec.structs.replace(KID, prompt_tokens=399)
    sim = SimulatedRun(spec(approvals={"kid": "always"}), toolset=msgspec.structs.replace(OFFER, members={"kid": kid}))
    sim.begin(budget=Budget(tokens=414))
    sim.say(call("kid", task="x" * 5), usage=Usage(10, 5))
    events = sim.arrive(Decision(id="d1", tree="r1", run="r1", at=3.0, call="r1_1_0", verdict="approved", sender="ann"))
    assert kinds(events) == ["ApprovalDecided", "CallRefused", "StepFinished", "ModelCalled"]
    assert only(events, ev.CallRefused).error.type == "BudgetExceeded"
    assert sent(sim, Task) == []


def test_what_a_member_left_over_comes_back() -> None:
    sim = SimulatedRun().begin(budget=Budget(tokens=115))
    sim.say(call("kid", task="x"), call("kid", task="y"), usage=Usage(10, 5))
    sim.arrive(report("r1_1_0", "a", usage=Usage(10, 0, 1)))
    sim.arrive(report("r1_1_1", "b", usage=Usage(10, 0, 1)))
    sim.say(call("kid", task="z"), usage=Usage(5, 0))
    assert [one.budget for one in sent(sim, Task)] == [Budget(tokens=75)]


def test_a_depth_of_zero_allows_no_delegation() -> None:
    sim = SimulatedRun().begin(budget=Budget(depth=0))
    assert "no further level" in only(sim.say(call("kid", task="x")), ev.CallRefused).error.message


# --- timeouts


def test_a_call_that_is_not_answered_in_time_becomes_an_observation() -> None:
    sim = SimulatedRun(spec(timeouts={"add": 30, "kid": 60})).begin()
    sim.say(call("add", a=1, b=1), call("kid", task="x"))
    timers = {command.timer.name: command.due for command in sim.owed() if isinstance(command, SetTimer)}
    assert timers == {"call-r1_1_0": 130.0, "call-r1_1_1": 160.0}
    assert [one.deadline for one in sent(sim, ToolCall)] == [130.0]
    sim.at = 130.1
    assert kinds(sim.arrive(timer("call-r1_1_0"))) == ["CallTimedOut"]
    (revoked,) = sim.owed(since=3)
    assert isinstance(revoked, Revoke)
    assert kinds(sim.arrive(result("r1_1_0", 2))) == ["RecordIgnored"], "too late is too late"
    sim.at = 160.1
    assert kinds(sim.arrive(timer("call-r1_1_1"))) == ["CallTimedOut", "StepFinished", "ModelCalled"]
    assert [one.id for one in sent(sim, Cancel, since=5)] == ["r1_1_1:cancel"]
    step = sim.run.steps[-1]
    assert isinstance(step, ActionStep)
    assert "no answer within 30 s" in repr(step.calls[0].error)


def test_what_a_member_used_is_counted_when_nobody_waits_for_it_any_more() -> None:
    sim = SimulatedRun(spec(timeouts={"kid": 60})).begin(budget=Budget(tokens=100))
    sim.say(call("kid", task="x"), usage=Usage(10, 0))
    sim.at = 160.1
    sim.arrive(timer("call-r1_1_0"))
    sim.say(call("kid", task="y"), usage=Usage(10, 0))
    lent = [one.budget for one in sent(sim, Task)]
    assert lent == [Budget(tokens=0)], "the first one may still use up all that it was lent"

    weight, steps = sim.run.tokens, len(sim.run.steps)
    late = report("r1_1_0", "late words " * 50, state="cancelled", usage=Usage(60, 5, model_calls=2))
    assert kinds(sim.arrive(late)) == ["DelegateFinished"]
    assert sim.run.usage == Usage(80, 5, model_calls=4, steps=1)
    assert (sim.run.tokens, len(sim.run.steps)) == (weight, steps), "nothing else of it counts"
    assert [one.id for one in sim.run.open_calls()] == ["r1_2_0"]
    assert kinds(sim.arrive(late, cause="again")) == ["RecordIgnored"]
    sim.arrive(report("r1_2_0", "done"))
    sim.say(call("kid", task="z"), usage=Usage(5, 0))
    assert [one.budget for one in sent(sim, Task)] == [Budget(tokens=10)]


# --- what is away


@pytest.mark.parametrize(("begun", "code", "type_"), [(False, "away", "Away"), (True, "left", "Interrupted")])
def test_a_call_whose_executor_is_away_ends_with_a_code(begun: bool, code: str, type_: str) -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=1), call("kid", task="x"))
    sim.at = 163.0
    (timed_out,) = sim.arrive(timer(away_timer("r1_1_0", begun=begun)))
    assert timed_out == ev.CallTimedOut(call="r1_1_0", seconds=63.0, code=code)  # type: ignore[arg-type]
    (revoked,) = sim.owed(since=3)
    assert isinstance(revoked, Revoke), "it is not begun any more"
    again = timer(away_timer("r1_1_0", begun=begun))
    assert kinds(sim.arrive(again, cause="again")) == ["RecordIgnored"]
    assert kinds(sim.arrive(result("r1_1_0", 2))) == ["RecordIgnored"], "too late is too late"
    events = sim.arrive(timer(away_timer("r1_1_1", begun=False)))
    assert kinds(events) == ["CallTimedOut", "StepFinished", "ModelCalled"]
    assert [one.id for one in sent(sim, Cancel, since=3)] == ["r1_1_1:cancel"]
    step = sim.run.steps[-1]
    assert isinstance(step, ActionStep)
    assert [one.error.type for one in step.calls if one.error] == [type_, "Away"]
    sound(sim)


def test_a_call_that_was_answered_does_not_hear_that_its_executor_is_away() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=1), call("add", a=2, b=2))
    sim.arrive(result("r1_1_0", 2))
    assert kinds(sim.arrive(timer(away_timer("r1_1_0", begun=False)))) == ["RecordIgnored"]
    assert kinds(sim.arrive(timer(away_timer("r1_1_9", begun=False)))) == ["RecordIgnored"]
    sound(sim)


def test_a_call_that_goes_on_is_named_by_its_round_when_its_executor_is_away() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=1))
    sim.arrive(result("r1_1_0", unfinished=Unfinished(state={}, seconds=5.0)))
    assert kinds(sim.arrive(timer(away_timer("r1_1_0", begun=True)))) == ["RecordIgnored"], "it is paused"
    (pause,) = waits(sim.run)
    assert kinds(sim.arrive(timer(pause.name))) == ["ToolCalled"]
    (sent_again,) = sent(sim, ToolCall)
    assert sent_again.id != "r1_1_0"
    assert kinds(sim.arrive(timer(away_timer(sent_again.id, begun=False)))) == [
        "CallTimedOut",
        "StepFinished",
        "ModelCalled",
    ]
    sound(sim)


def test_an_answer_whose_check_is_away_does_not_pass() -> None:
    sim = SimulatedRun(spec(checks=["judge"])).begin()
    sim.say(ANSWER)
    (asked,) = sent(sim, ToolCall)
    events = sim.arrive(timer(away_timer(asked.id, begun=False)))
    assert kinds(events)[:2] == ["CallTimedOut", "AnswerChecked"]
    assert sim.run.result is None
    sound(sim)


def test_an_answer_in_time_removes_the_timer() -> None:
    sim = SimulatedRun(spec(timeouts={"add": 30})).begin()
    sim.say(call("add", a=1, b=1), call("add", a=2, b=2))
    before = running(sim.run)
    sim.arrive(result("r1_1_1", 4))
    assert ended(before, sim.run) == "call-r1_1_1"
    assert kinds(sim.arrive(timer("call-r1_1_1"))) == ["RecordIgnored"]


# --- batches


def test_a_run_has_at_most_so_many_calls_under_way() -> None:
    sim = limited(parallel=2).begin()
    sim.say(*(call("add", a=n, b=1) for n in range(5)))
    assert [one.id for one in sent(sim, ToolCall)] == ["r1_1_0", "r1_1_1"]
    sim.arrive(result("r1_1_1", 2))
    assert [one.id for one in sent(sim, ToolCall, since=3)] == ["r1_1_2"]
    sim.arrive(result("r1_1_0", 1))
    sim.arrive(cancel())
    revoked = sorted(command.result.call for command in sim.owed() if isinstance(command, Revoke))
    assert revoked == ["r1_1_2", "r1_1_3"]


def test_the_step_ends_when_the_last_batch_is_answered() -> None:
    sim = limited(parallel=1).begin()
    sim.say(*(call("add", a=n, b=1) for n in range(3)))
    for n in range(2):
        assert kinds(sim.arrive(result(f"r1_1_{n}", n))) == ["ToolAnswered"]
    assert kinds(sim.arrive(result("r1_1_2", 3))) == ["ToolAnswered", "StepFinished", "ModelCalled"]
