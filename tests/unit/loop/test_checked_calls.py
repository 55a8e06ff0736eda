"""Checks of an answer that look at the calls which the run has made before it."""

from typing import Any

from cadre.engine.offer import offer_of
from cadre.journal import events as ev
from cadre.protocol.cards import Presence, ToolCard
from cadre.protocol.messages import CodeFinished, ErrorInfo, ToolCall
from kinds.code.build import asks, ended, yielded
from unit.loop.build import ADD, Course, call, kinds, only, report, result, sent, sound, spec, task
from unit.loop.test_proposing import answer, begun


def coded(value: Any, step: int = 1, exchange: int = 0) -> CodeFinished:
    block = f"r1:code:{step}"
    return ended(exchange, block=block, output=value, text=str(value), is_final_answer=True)


CALLED = "when: 'add' in calls | rejectattr('error') | map(attribute='name')"


def test_an_answer_counts_only_behind_a_call_that_went_well() -> None:
    course = begun(checks=[CALLED])
    assert kinds(course.say(answer("42")))[1:3] == ["CallRefused", "StepFinished"]
    course.say(call("add", a=20, b="x"))
    assert kinds(course.say(answer("42")))[1:3] == ["CallRefused", "StepFinished"]
    course.say(call("add", a=20, b=22))
    course.arrive(result("r1_4_0", 42))
    assert only(course.say(answer("42")), ev.RunFinished).output == "42"
    sound(course)


def test_calls_are_those_for_this_task_with_arguments_and_errors() -> None:
    course = begun()
    course.say(call("add", a=1, b=2), call("kid", task="x"), call("look"))
    course.arrive(result("r1_1_0", error=ErrorInfo("tool-failed", "no")))
    course.arrive(report("r1_1_1", "done"))
    course.say(answer("3"))
    earlier = course.run.steps
    begun_anew = Course(spec(checks=["when: (calls | list | length) == 0"]))
    begun_anew.arrive(task("And now?"), history=earlier)
    assert only(begun_anew.say(answer("3")), ev.RunFinished).state == "success"

    arguments = (
        "calls[0].arguments == {'a': 1, 'b': 2} and calls[0].error == 'no' and calls[2].error is string"
    )
    names = "calls | map(attribute='name') | join(' ') == 'add kid look'"
    course = begun(checks=[f"when: {arguments}", f"when: {names} and calls[1].error is none"])
    course.say(call("add", a=1, b=2), call("kid", task="x"), call("look"))
    course.arrive(result("r1_1_0", error=ErrorInfo("tool-failed", "no")))
    course.arrive(report("r1_1_1", "done"))
    assert only(course.say(answer("3")), ev.RunFinished).state == "success"


def test_calls_of_code_count() -> None:
    course = Course(spec(kind="code", checks=[CALLED])).begin()
    course.say(content="<code>final_answer(1)</code>")
    refused = course.arrive(coded(1))
    assert "is not true of this answer" in str(refused)
    course.say(content="<code>final_answer(add(1, 2))</code>")
    course.arrive(yielded(asks("add", a=1, b=2), block="r1:code:2"))
    course.arrive(result("r1_2_0", 3))
    assert only(course.arrive(coded(3, step=2, exchange=1)), ev.RunFinished).output == 3


def test_a_tool_that_takes_the_calls_is_given_them() -> None:
    taking = {"type": "object", "properties": {"answer": {}, "task": {}, "calls": {}}}
    plain = {"type": "object", "properties": {"answer": {}, "task": {}}}
    agent = spec(checks=["asked_well", "spelling"])
    cards = [
        ToolCard(name="asked_well", description="Checks.", input_schema=taking),
        ToolCard(name="spelling", description="Checks.", input_schema=plain),
        ADD,
    ]
    live = [Presence(instance=c.name, host="h", pid=1, started_at=1.0, tool=c) for c in cards]
    offer = offer_of(agent, live)
    assert offer.checks_with_calls == ["asked_well"]
    course = Course(agent, offer).begin("Sum up.")
    course.say(call("add", a=1, b=2))
    course.arrive(result("r1_1_0", 3))
    course.say(answer("3"))
    plain_arguments = {"answer": "3", "task": "Sum up."}
    calls = [{"name": "add", "arguments": {"a": 1, "b": 2}, "error": None}]
    assert [one.arguments for one in sent(course, ToolCall)] == [
        {**plain_arguments, "calls": calls},
        plain_arguments,
    ]
    sound(course)
