"""Calls that a person must agree to: held back, decided once, corrected, expired."""

from typing import Any

import msgspec
import pytest

from cadre.engine.chat import Transcript
from cadre.engine.commands import CallModel, Revoke, SetTimer
from cadre.engine.timers import ended, running
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.arrivals import Toolset
from cadre.journal.run import Phase
from cadre.protocol.cards import ToolCard
from cadre.protocol.messages import Decision, Task, ToolCall, Verdict
from harness.texts import holds
from unit.loop.build import (
    ADD,
    ANSWER,
    KID,
    LOOK,
    SimulatedRun,
    call,
    cancel,
    kinds,
    only,
    report,
    result,
    sent,
    spec,
    timer,
)
from unit.loop.memory_world import PROMPTS


def decision(call: str, verdict: Verdict, id: str = "d1", **fields: Any) -> Decision:
    return Decision(id=id, tree="r1", run="r1", at=3.0, call=call, verdict=verdict, sender="ann", **fields)


def asking(**fields: object) -> SimulatedRun:
    """A run whose model has asked for one addition that a person must agree to."""
    sim = SimulatedRun(spec(approvals={"add": "when: a > 10"}, **fields)).begin()
    sim.say(call("add", a=11, b=1))
    return sim


def test_a_held_call_is_asked_for_and_not_sent() -> None:
    sim = SimulatedRun(spec(approvals={"add": "when: a > 10"})).begin()
    events = sim.say(call("add", a=11, b=1), call("add", a=1, b=1))
    assert kinds(events) == ["ModelAnswered", "ApprovalRequested", "ToolCalled"]
    assert only(events, ev.ApprovalRequested) == ev.ApprovalRequested(
        call="r1_1_0", name="add", kind="tool", arguments={"a": 11, "b": 1}, reason="when: a > 10"
    )
    assert [one.id for one in sent(sim, ToolCall)] == ["r1_1_1"]
    assert len(sim.owed()) == 1
    assert sim.arrive(result("r1_1_0", 12))[0] == ev.RecordIgnored(kind="ToolResult", code="not-awaited"), (
        "nobody was asked for this result"
    )


def test_a_person_is_asked_in_the_words_of_the_tool() -> None:
    """The arguments as they are sent, defaults and the values of variables too, each cut."""
    schema = {
        "type": "object",
        "properties": {
            "amount": {"type": "number"},
            "order": {"type": "string"},
            "note": {"type": "string"},
            "by": {"type": "string", "default": "post"},
        },
    }
    card = ToolCard(
        name="refund",
        description="Pays back.",
        input_schema=schema,
        approval="always",
        approval_text="Refund {amount} € for {order} by {by} {{{note}}}",
    )
    sim = SimulatedRun(spec(tools=["refund"]), Toolset({"refund": card}, {})).begin(inputs={"the_order": "A-17"})
    events = sim.say(call("refund", amount=12.5, order="the_order", note="x" * 200))
    text = only(events, ev.ApprovalRequested).text
    assert text == f"Refund 12.5 € for A-17 by post {{{'x' * 79}…}}"


def test_an_approved_call_is_made_as_it_was_asked_for() -> None:
    sim = asking()
    assert sim.run.phase is Phase.ACTING
    assert sim.owed() == [], "nobody works for the run until somebody decides"
    events = sim.arrive(decision("r1_1_0", "approved"))
    assert kinds(events) == ["ApprovalDecided", "ToolCalled"]
    assert [one.arguments for one in sent(sim, ToolCall, since=3)] == [{"a": 11, "b": 1}]
    assert kinds(sim.arrive(result("r1_1_0", 12))) == ["ToolAnswered", "StepFinished", "ModelCalled"]


def test_a_rejected_call_becomes_an_observation_with_the_reason() -> None:
    sim = asking()
    events = sim.arrive(decision("r1_1_0", "rejected", feedback="Too much."))
    assert kinds(events) == ["ApprovalDecided", "StepFinished", "ModelCalled"]
    (command,) = sim.owed(since=3)
    assert isinstance(command, CallModel)
    text = Transcript(PROMPTS).request(sim.run, "act").messages[-1]["content"]
    assert "did not allow" in text
    assert "Too much." in text


def test_corrected_arguments_are_what_the_tool_gets_and_the_model_is_told() -> None:
    sim = asking()
    sim.arrive(decision("r1_1_0", "corrected", arguments={"a": 2, "b": 3}, feedback="Smaller."))
    assert [(one.tool, one.arguments) for one in sent(sim, ToolCall, since=3)] == [("add", {"a": 2, "b": 3})]
    sim.arrive(result("r1_1_0", 5))
    asked, observed = Transcript(PROMPTS).request(sim.run, "act").messages[-2:]
    function = asked["tool_calls"][0]["function"]
    assert (function["name"], msgspec.json.decode(function["arguments"])) == ("add", {"a": 11, "b": 1})
    assert observed["content"].endswith("\n5")
    assert holds(observed["content"], '{"a":2,"b":3}', "Smaller.")


def test_a_call_can_be_corrected_to_another_tool_or_to_a_team_member() -> None:
    sim = asking()
    sim.arrive(decision("r1_1_0", "corrected", tool="look", arguments={"at": "x"}))
    assert [one.tool for one in sent(sim, ToolCall, since=3)] == ["look"]
    sim = asking()
    sim.arrive(decision("r1_1_0", "corrected", tool="kid", arguments={"task": "Add 11 and 1."}))
    assert [(one.agent, one.task) for one in sent(sim, Task, since=3)] == [("kid", "Add 11 and 1.")]
    assert kinds(sim.arrive(report("r1_1_0", "12"))) == ["DelegateFinished", "StepFinished", "ModelCalled"]


@pytest.mark.parametrize(
    "correction",
    [{"arguments": {"a": "many", "b": 1}}, {"tool": "rob"}, {"tool": "final_answer"}, {"arguments": {}}],
)
def test_a_correction_that_cannot_be_made_leaves_the_call_waiting(correction: dict[str, Any]) -> None:
    sim = asking()
    (ignored,) = sim.arrive(decision("r1_1_0", "corrected", **correction))
    assert isinstance(ignored, ev.RecordIgnored)
    assert ignored.code == "invalid-correction"
    assert sim.owed() == []
    assert kinds(sim.arrive(decision("r1_1_0", "approved", id="d2"))) == ["ApprovalDecided", "ToolCalled"]


def test_the_first_decision_counts() -> None:
    sim = asking()
    sim.arrive(decision("r1_1_0", "approved"))
    (late,) = sim.arrive(decision("r1_1_0", "rejected", id="d2"))
    assert isinstance(late, ev.RecordIgnored)
    assert len(sim.owed()) == 1


def test_a_decision_about_nothing_is_accounted_for() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=1))
    assert isinstance(sim.arrive(decision("r1_1_0", "approved"))[0], ev.RecordIgnored)
    assert isinstance(sim.arrive(decision("r1_9_9", "approved", id="d2"))[0], ev.RecordIgnored)


def test_an_approval_expires_by_a_timer_that_a_decision_removes() -> None:
    sim = asking(approval_seconds=60)
    (wait,) = sim.owed()
    assert isinstance(wait, SetTimer)
    assert (wait.due, wait.timer.name, wait.cause) == (160.0, "approval-r1_1_0", None)
    before = running(sim.run)
    approved = asking(approval_seconds=60)
    approved.arrive(decision("r1_1_0", "approved"))
    assert ended(before, approved.run) == "approval-r1_1_0"
    events = sim.arrive(timer("approval-r1_1_0"))
    assert kinds(events) == ["ApprovalDecided", "StepFinished", "ModelCalled"]
    assert only(events, ev.ApprovalDecided).verdict == "expired"
    assert ended(before, sim.run, "approval-r1_1_0") is None


def test_a_timer_after_the_decision_changes_nothing() -> None:
    sim = asking(approval_seconds=60)
    sim.arrive(decision("r1_1_0", "approved"))
    assert kinds(sim.arrive(timer("approval-r1_1_0"))) == ["RecordIgnored"]


def test_cancelling_a_run_with_a_held_call_sends_nothing_about_it() -> None:
    sim = asking()
    sim.arrive(cancel())
    assert sim.run.phase is Phase.DONE
    assert sim.owed() == []
    assert kinds(sim.arrive(decision("r1_1_0", "approved"))) == ["RecordIgnored"]


@pytest.mark.parametrize(
    ("own", "approvals", "permission", "held"),
    [
        ("", {}, "open", False),
        ("", {}, "restricted", True),
        ("never", {}, "restricted", False),
        ("always", {}, "open", True),
        ("always", {"add": "never"}, "open", False),
        ("never", {"add": "always"}, "open", True),
        ("", {"*": "always"}, "open", True),
        ("never", {"*": "always"}, "open", False),
        ("when: a == 1", {}, "open", True),
        ("when: a == 2", {}, "restricted", False),
        ("sometimes", {}, "open", True),
        ("when: nothing > 1", {}, "open", True),
    ],
)
def test_whose_word_counts(own: str, approvals: dict[str, str], permission: str, held: bool) -> None:
    tools = {"add": msgspec.structs.replace(ADD, approval=own), "look": LOOK}
    sim = SimulatedRun(
        spec(approvals=approvals, permission=permission), Toolset(tools=tools, members={"kid": KID})
    ).begin()
    events = sim.say(call("add", a=1, b=1))
    assert ("ApprovalRequested" in kinds(events)) is held


def test_members_are_held_when_they_are_named() -> None:
    sim = SimulatedRun(spec(permission="restricted")).begin()
    assert "DelegateStarted" in kinds(sim.say(call("kid", task="x")))
    sim = SimulatedRun(spec(approvals={"kid": "when: 'prod' in task"})).begin()
    asked = only(sim.say(call("kid", task="deploy to prod")), ev.ApprovalRequested)
    assert (asked.kind, asked.arguments) == ("member", {"task": "deploy to prod"})
    sim.arrive(decision("r1_1_0", "approved"))
    assert [one.task for one in sent(sim, Task)] == ["deploy to prod"]


def test_the_value_of_a_variable_is_judged_not_its_name() -> None:
    sim = SimulatedRun(spec(approvals={"add": "when: a > 10"})).begin(inputs={"big": 11, "small": 1})
    assert "ApprovalRequested" in kinds(sim.say(call("add", a="big", b="small")))


def test_the_final_answer_needs_nobody() -> None:
    sim = SimulatedRun(spec(permission="restricted", approvals={"*": "always"})).begin()
    assert kinds(sim.say(ANSWER))[-1] == "RunFinished"


def test_a_call_made_after_a_decision_is_revoked_when_the_run_ends() -> None:
    sim = asking()
    sim.arrive(decision("r1_1_0", "approved"))
    sim.arrive(cancel())
    (revoked,) = sim.owed()
    assert isinstance(revoked, Revoke)
    assert revoked.result.call == "r1_1_0"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"approvals": {"add": "maybe"}}, "'maybe'"),
        ({"approvals": {"add": "when: a >"}}, "unexpected"),
        ({"approvals": {"rob": "always"}}, "names rob, "),
        ({"timeouts": {"rob": 3}}, "names rob, "),
        ({"timeouts": {"add": 0}}, "at least"),
        ({"approval_seconds": 0}, "at least"),
    ],
)
def test_a_wrong_policy_is_refused_with_the_spec(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        spec(**fields).__post_init__()
