"""What a run owes in each phase: the same however often it is asked, with ids derived from the run."""

from typing import Any

from cadre.engine.commands import CallModel, Revoke, Send, SetTimer
from cadre.protocol.messages import Cancel, ErrorInfo, ReplyTo, Report, Task, TimerFired, ToolCall
from cadre.protocol.usage import Usage
from unit.loop.build import ANSWER, Course, call, cancel, report, result, sent, task


def test_nothing_before_the_task() -> None:
    assert Course().owed() == []


def test_thinking_owes_the_model_call_since_the_entry_that_began_it() -> None:
    course = Course().begin()
    assert course.owed() == [CallModel("act", 1, 1, "r1:task")]
    assert course.owed(since=1) == course.owed()
    course.arrive(result("r1_9_9", "late"))
    assert course.owed(since=2) == []
    assert course.owed() == [CallModel("act", 1, 1, "r1:task")]


def test_waiting_owes_its_timer() -> None:
    course = Course().begin()
    course.fail(retry_after=9.0)
    expected = TimerFired(id="r1:model-act-1-1", tree="r1", run="r1", at=109.0, name="model-act-1-1")
    assert course.owed(since=2) == course.owed() == [SetTimer(expected, 109.0, 100.0, "r1:task")]
    assert course.owed(since=3) == []


def test_acting_owes_each_open_call_and_no_answered_one() -> None:
    course = Course().begin("Do.", trace="00-aa-bb-01", path=["top"])
    course.say(call("add", a=1, b=2), call("kid", task="x", additional_args={"k": 1}), call("nope"))
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
    assert course.owed(since=2) == course.owed() == [Send(tool), Send(child)]
    assert course.owed(since=3) == []
    course.at = 500.0
    course.arrive(result("r1_1_0", 3))
    assert course.owed() == [Send(child)], "asked later, it is the same message still"
    assert course.owed(since=3) == []


def test_a_finished_root_owes_nothing() -> None:
    course = Course().begin()
    course.say(ANSWER)
    assert course.owed() == []


def test_a_finished_child_owes_its_report() -> None:
    course = Course(run="r1_1_0")
    course.arrive(task(run="r1_1_0", parent="r1"))
    course.say(ANSWER, usage=Usage(5, 6))
    place: dict[str, Any] = {"tree": "r1", "run": "r1", "at": 100.0, "child": "r1_1_0", "agent": "boss"}
    used = Usage(5, 6, 1, steps=1)
    expected = Report(id="r1_1_0:report", **place, state="success", output="42", usage=used, steps=1)
    assert course.owed(since=2) == course.owed() == [Send(expected, to="chief")]
    course.arrive(cancel())
    assert course.owed(since=3) == []
    assert course.owed() == [Send(expected, to="chief")]


def test_the_report_tells_how_the_run_ended() -> None:
    course = Course(run="r1_1_0")
    course.arrive(task(run="r1_1_0", parent="r1", max_steps=1))
    course.say(content="no call")
    course.say(content="half")
    (out_of_steps,) = sent(course, Report)
    assert (out_of_steps.state, out_of_steps.output) == ("max_steps_error", "half")
    assert out_of_steps.error is not None
    failing = Course(run="r1_1_0")
    failing.arrive(task(run="r1_1_0", parent="r1"))
    failing.fail("bad key", final=True)
    (failed,) = sent(failing, Report)
    assert (failed.state, failed.output) == ("error", None)
    assert failed.error == ErrorInfo("no-answer", "bad key")


def test_open_children_are_cancelled_when_their_run_ends() -> None:
    course = Course().begin()
    course.say(call("kid", task="x"), call("add", a=1, b=1), call("kid", task="y"))
    course.arrive(report("r1_1_0", "done"))
    course.arrive(cancel(reason="too slow"))
    revoked, word = course.owed(since=4)
    assert isinstance(revoked, Revoke)
    assert (revoked.result.call, revoked.result.tool) == ("r1_1_1", "add")
    assert revoked.result.error is not None
    assert revoked.result.error.type == "Cancelled"
    assert isinstance(word, Send)
    assert isinstance(word.message, Cancel)
    assert (word.to, word.message.id, word.message.run) == ("kid", "r1_1_2:cancel", "r1_1_2")
    assert word.message.sender == "boss"
    assert "too slow" in word.message.reason
