"""Checks of an answer that look at the calls which the run has made before it."""

from typing import Any

from cadre.engine.toolset import toolset_of
from cadre.journal import events as ev
from cadre.protocol.cards import Presence, ToolCard
from cadre.protocol.messages import CodeFinished, ErrorInfo, ToolCall
from kinds.code.build import asks, ended, yielded
from unit.loop.build import ADD, SimulatedRun, call, kinds, only, report, result, sent, sound, spec, task
from unit.loop.test_proposing import answer, begun


def coded(value: Any, step: int = 1, exchange: int = 0) -> CodeFinished:
    block = f"r1:code:{step}"
    return ended(exchange, block=block, output=value, text=str(value), is_final_answer=True)


CALLED = "when: 'add' in calls | rejectattr('error') | map(attribute='name')"


def test_an_answer_counts_only_behind_a_call_that_went_well() -> None:
    sim = begun(checks=[CALLED])
    assert kinds(sim.say(answer("42")))[1:3] == ["CallRefused", "StepFinished"]
    sim.say(call("add", a=20, b="x"))
    assert kinds(sim.say(answer("42")))[1:3] == ["CallRefused", "StepFinished"]
    sim.say(call("add", a=20, b=22))
    sim.arrive(result("r1_4_0", 42))
    assert only(sim.say(answer("42")), ev.RunFinished).output == "42"
    sound(sim)


def test_calls_are_those_for_this_task_with_arguments_and_errors() -> None:
    sim = begun()
    sim.say(call("add", a=1, b=2), call("kid", task="x"), call("look"))
    sim.arrive(result("r1_1_0", error=ErrorInfo("tool-failed", "no")))
    sim.arrive(report("r1_1_1", "done"))
    sim.say(answer("3"))
    earlier = sim.run.steps
    begun_anew = SimulatedRun(spec(checks=["when: (calls | list | length) == 0"]))
    begun_anew.arrive(task("And now?"), history=earlier)
    assert only(begun_anew.say(answer("3")), ev.RunFinished).state == "success"

    arguments = "calls[0].arguments == {'a': 1, 'b': 2} and calls[0].error == 'no' and calls[2].error is string"
    names = "calls | map(attribute='name') | join(' ') == 'add kid look'"
    sim = begun(checks=[f"when: {arguments}", f"when: {names} and calls[1].error is none"])
    sim.say(call("add", a=1, b=2), call("kid", task="x"), call("look"))
    sim.arrive(result("r1_1_0", error=ErrorInfo("tool-failed", "no")))
    sim.arrive(report("r1_1_1", "done"))
    assert only(sim.say(answer("3")), ev.RunFinished).state == "success"


def test_calls_of_code_count() -> None:
    sim = SimulatedRun(spec(kind="code", checks=[CALLED])).begin()
    sim.say(content="<code>final_answer(1)</code>")
    refused = sim.arrive(coded(1))
    assert {error.code for one in refused if (error := getattr(one, "error", None))} == {"not-passed"}
    sim.say(content="<code>final_answer(add(1, 2))</code>")
    sim.arrive(yielded(asks("add", a=1, b=2), block="r1:code:2"))
    sim.arrive(result("r1_2_0", 3))
    assert only(sim.arrive(coded(3, step=2, exchange=1)), ev.RunFinished).output == 3


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
    toolset = toolset_of(agent, live)
    assert toolset.checks_with_calls == ["asked_well"]
    sim = SimulatedRun(agent, toolset).begin("Sum up.")
    sim.say(call("add", a=1, b=2))
    sim.arrive(result("r1_1_0", 3))
    sim.say(answer("3"))
    plain_arguments = {"answer": "3", "task": "Sum up."}
    calls = [{"name": "add", "arguments": {"a": 1, "b": 2}, "error": None}]
    assert [one.arguments for one in sent(sim, ToolCall)] == [
        {**plain_arguments, "calls": calls},
        plain_arguments,
    ]
    sound(sim)
