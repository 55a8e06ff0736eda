"""Tests of what a run owes in each phase: the same however often it is asked, with ids derived from the run."""

from typing import Any

from cadre.engine.commands import CallModel, Revoke, Send, SetTimer
from cadre.protocol.messages import Cancel, ErrorInfo, ReplyTo, Report, Task, TimerFired, ToolCall
from cadre.protocol.usage import Usage
from unit.loop.build import ANSWER, SimulatedRun, call, cancel, report, result, sent, task


def test_nothing_before_the_task() -> None:
    assert SimulatedRun().owed() == []


def test_thinking_owes_the_model_call_since_the_entry_that_began_it() -> None:
    sim = SimulatedRun().begin()
    assert sim.owed() == [CallModel("act", 1, 1, "r1:task")]
    assert sim.owed(since=1) == sim.owed()
    sim.arrive(result("r1_9_9", "late"))
    assert sim.owed(since=2) == []
    assert sim.owed() == [CallModel("act", 1, 1, "r1:task")]


def test_waiting_owes_its_timer() -> None:
    sim = SimulatedRun().begin()
    sim.fail(retry_after=9.0)
    expected = TimerFired(id="r1:model-act-1-1", tree="r1", run="r1", at=109.0, name="model-act-1-1")
    assert sim.owed(since=2) == sim.owed() == [SetTimer(expected, 109.0, 100.0, "r1:task")]
    assert sim.owed(since=3) == []


def test_acting_owes_each_open_call_and_no_answered_one() -> None:
    sim = SimulatedRun().begin("Do.", trace="00-aa-bb-01", path=["top"])
    sim.say(call("add", a=1, b=2), call("kid", task="x", additional_args={"k": 1}), call("nope"))
    common: dict[str, Any] = {"tree": "r1", "at": 100.0, "trace": "00-aa-bb-01"}
    for_add: dict[str, Any] = {
        "agent": "boss",
        "tool": "add",
        "arguments": {"a": 1, "b": 2},
        "output_chars": 20_000,
        "may_pause": True,
    }
    tool = ToolCall(id="r1_1_0", run="r1", **common, **for_add)
    for_kid: dict[str, Any] = {
        "agent": "kid",
        "task": "x",
        "inputs": {"k": 1},
        "reply_to": ReplyTo("boss", "r1"),
    }
    child = Task(id="r1_1_1:task", run="r1_1_1", path=["top", "boss"], **common, **for_kid)
    assert sim.owed(since=2) == sim.owed() == [Send(tool), Send(child)]
    assert sim.owed(since=3) == []
    sim.at = 500.0
    sim.arrive(result("r1_1_0", 3))
    assert sim.owed() == [Send(child)], "asked later, it is the same message still"
    assert sim.owed(since=3) == []


def test_a_finished_root_owes_nothing() -> None:
    sim = SimulatedRun().begin()
    sim.say(ANSWER)
    assert sim.owed() == []


def test_a_finished_child_owes_its_report() -> None:
    sim = SimulatedRun(run="r1_1_0")
    sim.arrive(task(run="r1_1_0", parent="r1"))
    sim.say(ANSWER, usage=Usage(5, 6))
    place: dict[str, Any] = {"tree": "r1", "run": "r1", "at": 100.0, "child": "r1_1_0", "agent": "boss"}
    used = Usage(5, 6, 1, steps=1)
    expected = Report(id="r1_1_0:report", **place, state="success", output="42", usage=used, steps=1)
    assert sim.owed(since=2) == sim.owed() == [Send(expected, to="chief")]
    sim.arrive(cancel())
    assert sim.owed(since=3) == []
    assert sim.owed() == [Send(expected, to="chief")]


def test_the_report_tells_how_the_run_ended() -> None:
    sim = SimulatedRun(run="r1_1_0")
    sim.arrive(task(run="r1_1_0", parent="r1", max_steps=1))
    sim.say(content="no call")
    sim.say(content="half")
    (out_of_steps,) = sent(sim, Report)
    assert (out_of_steps.state, out_of_steps.output) == ("max_steps_error", "half")
    assert out_of_steps.error is not None
    failing = SimulatedRun(run="r1_1_0")
    failing.arrive(task(run="r1_1_0", parent="r1"))
    failing.fail("bad key", final=True)
    (failed,) = sent(failing, Report)
    assert (failed.state, failed.output) == ("error", None)
    assert failed.error == ErrorInfo("no-answer", "bad key")


def test_open_children_are_cancelled_when_their_run_ends() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("kid", task="x"), call("add", a=1, b=1), call("kid", task="y"))
    sim.arrive(report("r1_1_0", "done"))
    sim.arrive(cancel(reason="too slow"))
    revoked, word = sim.owed(since=4)
    assert isinstance(revoked, Revoke)
    assert (revoked.result.call, revoked.result.tool) == ("r1_1_1", "add")
    assert revoked.result.error is not None
    assert revoked.result.error.type == "Cancelled"
    assert isinstance(word, Send)
    assert isinstance(word.message, Cancel)
    assert (word.to, word.message.id, word.message.run) == ("kid", "r1_1_2:cancel", "r1_1_2")
    assert word.message.sender == "boss"
    assert "too slow" in word.message.reason
