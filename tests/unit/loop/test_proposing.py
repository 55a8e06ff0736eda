"""Answers are proposed before they are given: schema, expressions, checks by tools."""

import copy
from typing import Any

import pytest

from cadre.engine.chat import Transcript
from cadre.engine.commands import Revoke, Send
from cadre.engine.model_request import ModelRequest
from cadre.engine.toolset import toolset_of
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.run import ActionStep, Phase
from cadre.prompting.prompts import Prompts
from cadre.protocol.cards import Presence, ToolCard
from cadre.protocol.messages import CodeFinished, ErrorInfo, Report, ToolCall
from cadre.runtime.runner import work_of
from cadre.spec.agent import AgentSpec, Limits
from kinds.code.build import ended
from unit.loop.build import (
    ADD,
    OFFER,
    SimulatedRun,
    call,
    cancel,
    kinds,
    only,
    result,
    sent,
    sound,
    spec,
    timer,
)
from unit.loop.test_transcript import asked

PRICES = {
    "type": "object",
    "properties": {
        "total": {"type": "number"},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
    },
    "required": ["total"],
    "additionalProperties": False,
    "$defs": {"item": {"type": "string"}},
}


def begun(**fields: Any) -> SimulatedRun:
    return SimulatedRun(spec(**fields)).begin(inputs={"limit": 40})


def answer(value: Any) -> ev.RequestedCall:
    return call("final_answer", answer=value)


def request(sim: SimulatedRun, kind: str = "tool_calling") -> ModelRequest:
    return asked(sim, Transcript(Prompts.load(kind)))


def coded(value: Any, step: int = 1) -> CodeFinished:
    return ended(block=f"r1:code:{step}", output=value, text=str(value), is_final_answer=True)


# --- expressions


def test_an_answer_that_an_expression_does_not_let_pass_is_an_observation() -> None:
    sim = begun(checks=["when: answer | int > inputs.limit", "when: 'sum' not in task"])
    events = sim.say(answer("39"))
    assert kinds(events) == ["ModelAnswered", "CallRefused", "StepFinished", "ModelCalled"]
    refused = only(events, ev.CallRefused)
    assert (refused.name, refused.call) == ("final_answer", "r1_1_0")
    assert refused.error.code == "not-passed"
    assert "'when: answer | int > inputs.limit'" in refused.error.message
    assert "sum" not in refused.error.message, "what passed is not told of"
    shown = request(sim).messages
    assert shown[-2]["tool_calls"][0]["function"]["name"] == "final_answer"
    assert "Check 'when: answer" in shown[-1]["content"]
    end = only(sim.say(answer("41")), ev.RunFinished)
    assert (end.state, end.output) == ("success", "41")
    sound(sim)


def test_an_expression_that_trips_over_the_answer_does_not_let_it_pass() -> None:
    refused = only(begun(checks=["when: answer.total > 3"]).say(answer("three")), ev.CallRefused)
    assert "cannot be evaluated" in refused.error.message


def test_all_failures_are_told_at_once() -> None:
    refused = only(begun(checks=["when: answer > 1", "when: answer < 0"]).say(answer(1)), ev.CallRefused)
    assert refused.error.message.count("failed") == 2


# --- tools


def test_a_tool_checks_the_answer_before_it_counts() -> None:
    sim = begun(checks=["proofread", "when: answer"])
    events = sim.say(answer("42"))
    assert kinds(events) == ["ModelAnswered", "AnswerProposed", "ToolCalled"]
    assert sim.run.phase is Phase.ACTING
    (check,) = sent(sim, ToolCall)
    assert (check.tool, check.arguments) == ("proofread", {"answer": "42", "task": "Do it."})
    assert sim.owed() == sim.owed(), "a redelivery owes the same"
    events = sim.arrive(result("r1_1_1", True))
    assert kinds(events) == ["ToolAnswered", "AnswerChecked", "StepFinished", "RunFinished"]
    assert only(events, ev.RunFinished).output == "42"
    assert sim.run.proposal is None
    sound(sim)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"output": False}, "proofread"),
        ({"output": "False"}, "proofread"),
        ({"error": ErrorInfo("tool-failed", "the sum is wrong")}, "the sum is wrong"),
    ],
)
def test_a_tool_that_does_not_let_the_answer_pass(given: dict[str, Any], why: str) -> None:
    sim = begun(checks=["proofread", "spell"])
    sim.say(answer("42"))
    assert kinds(sim.arrive(result("r1_1_2", True))) == ["ToolAnswered", "AnswerChecked"]
    events = sim.arrive(result("r1_1_1", **given))
    assert kinds(events) == ["ToolAnswered", "AnswerChecked", "CallRefused", "StepFinished", "ModelCalled"]
    refused = only(events, ev.CallRefused)
    assert refused.error.message.startswith("Check 'proofread' failed: ")
    assert why in refused.error.message
    assert "spell" not in refused.error.message
    shown = request(sim).messages
    assert [one["function"]["name"] for one in shown[-2]["tool_calls"]] == ["final_answer"]
    assert "proofread' failed" in shown[-1]["content"], "the model reads the verdict, not the calls of the checks"
    assert sim.run.proposal is None
    sound(sim)


def test_a_check_that_takes_too_long_has_failed() -> None:
    sim = begun(checks=["proofread"], timeouts={"proofread": 5})
    sim.say(answer("42"))
    sim.at += 5
    events = sim.arrive(timer("call-r1_1_1"))
    assert kinds(events)[:3] == ["CallTimedOut", "AnswerChecked", "CallRefused"]
    assert "no answer within 5 s" in only(events, ev.CallRefused).error.message
    assert [command.result.call for command in sim.owed() if isinstance(command, Revoke)] == ["r1_1_1"]
    assert kinds(sim.arrive(result("r1_1_1", True))) == ["RecordIgnored"]
    sound(sim)


def test_checks_are_not_held_back_for_a_person_and_count_as_no_loop() -> None:
    sim = begun(checks=["proofread"], permission="restricted", limits=Limits(repeats=1, max_steps=9))
    for number in range(1, 5):
        assert "ToolCalled" in kinds(sim.say(answer("42")))
        sim.arrive(result(f"r1_{number}_1", False))
    assert sim.run.phase is Phase.THINKING


def test_a_variable_named_by_the_answer_is_what_is_checked() -> None:
    sim = begun(checks=["proofread"])
    sim.say(answer("limit"))
    (check,) = sent(sim, ToolCall)
    assert check.arguments["answer"] == 40
    assert only(sim.arrive(result("r1_1_1", True)), ev.RunFinished).output == 40


def test_a_run_that_is_cancelled_calls_its_checks_back() -> None:
    sim = begun(checks=["proofread"])
    sim.say(answer("42"))
    sim.arrive(cancel())
    assert [command.result.call for command in sim.owed() if isinstance(command, Revoke)] == ["r1_1_1"]
    assert sim.run.proposal is None


def test_out_of_time_the_unchecked_answer_is_told() -> None:
    sim = SimulatedRun(spec(checks=["proofread"])).begin(deadline=200.0)
    sim.say(answer("42"))
    sim.at = 200.0
    end = only(sim.arrive(timer("deadline")), ev.RunFinished)
    assert "42" in end.output


def test_the_last_answer_is_not_checked() -> None:
    sim = begun(checks=["when: false"], limits=Limits(max_steps=1))
    assert kinds(sim.say(answer("42")))[-1] == "ModelCalled"
    end = only(sim.say(content="41 or 42"), ev.RunFinished)
    assert (end.state, end.output) == ("max_steps_error", "41 or 42")


def test_the_answer_of_code_is_checked_as_well() -> None:
    sim = begun(kind="code", checks=["proofread", "when: answer != 7"])
    sim.say(content="<code>final_answer(7)</code>")
    events = sim.arrive(coded(7))
    assert kinds(events) == ["BlockFinished", "StepFinished", "ModelCalled"]
    assert "when: answer != 7' failed" in only(events, ev.StepFinished).error.message
    assert "answer != 7' failed" in request(sim, "code").messages[-1]["content"]
    sim.say(content="<code>final_answer(8)</code>")
    assert kinds(sim.arrive(coded(8, 2))) == ["BlockFinished", "AnswerProposed", "ToolCalled"]
    failed = sim.arrive(result("r1_2_0", 0))
    assert kinds(failed) == ["ToolAnswered", "AnswerChecked", "StepFinished", "ModelCalled"]
    step = sim.run.steps[-1]
    assert isinstance(step, ActionStep)
    assert (step.asked, len(step.calls)) == ([], 1)
    sim.say(content="<code>final_answer(9)</code>")
    sim.arrive(coded(9, 3))
    assert only(sim.arrive(result("r1_3_0", True)), ev.RunFinished).output == 9
    sound(sim)


def test_one_check_of_two_is_over() -> None:
    sim = begun(checks=["proofread", "spell"])
    sim.say(answer("42"))
    sim.arrive(result("r1_1_1", True))
    before = copy.deepcopy(sim.run)
    assert before.proposal is not None
    assert before.proposal.problems == {"r1_1_1": ""}
    assert only(sim.arrive(result("r1_1_2", True)), ev.RunFinished).output == "42"
    sound(sim)


def test_a_tool_that_only_checks_is_not_offered_but_missed() -> None:
    named = spec(tools=["add"], team=[], checks=["proofread", "when: answer"])
    alive = [presence(ADD), presence(ToolCard(name="proofread", description="x", input_schema={}))]
    assert toolset_of(named, alive[:1]).missing == ["proofread"]
    toolset = toolset_of(named, alive)
    assert (list(toolset.tools), toolset.missing) == (["add"], [])
    both = spec(tools=["add", "proofread"], team=[], checks=["proofread"])
    assert list(toolset_of(both, alive).tools) == ["add", "proofread"]


def presence(card: ToolCard) -> Presence:
    return Presence(instance=card.name, host="h", pid=1, started_at=1.0, tool=card)


# --- output schema


def test_an_answer_must_fit_the_output_schema() -> None:
    sim = begun(output_schema=PRICES)
    function = request(sim).tools[-1]["function"]
    assert function["parameters"]["properties"]["answer"]["required"] == ["total"]
    assert function["parameters"]["$defs"] == PRICES["$defs"], "references in it begin at the root"
    assert '"$ref": "#/$defs/item"' in request(sim).messages[0]["content"]
    refused = only(sim.say(answer({"items": ["a", 2], "total": 3})), ev.CallRefused)
    assert "answer.items[1]: 2 is not of type" in refused.error.message
    assert "total" in only(sim.say(answer({})), ev.CallRefused).error.message
    assert only(sim.say(answer({"total": 2.5})), ev.RunFinished).output == {"total": 2.5}
    sound(sim)


def test_json_text_that_fits_is_the_value() -> None:
    sim = begun(output_schema=PRICES)
    assert only(sim.say(answer('{"total": 3}')), ev.RunFinished).output == {"total": 3}
    text = begun(output_schema={"type": "string"})
    assert only(text.say(answer('{"total": 3}')), ev.RunFinished).output == '{"total": 3}'


def test_code_is_told_the_output_schema_and_held_to_it() -> None:
    sim = begun(kind="code", output_schema={"type": "integer"})
    assert 'must fit this JSON schema: {"type": "integer"}' in request(sim, "code").messages[0]["content"]
    sim.say(content="<code>final_answer('7')</code>")
    events = sim.arrive(coded("seven"))
    assert 'answer: "seven" is not of type' in only(events, ev.StepFinished).error.message


@pytest.mark.parametrize(
    ("words", "output"),
    [
        ('{"answer": {"total": 4}}', {"total": 4}),
        ('{"total": 4}', {"total": 4}),
        ('{"answer": {"total": "4"}}', '{"answer": {"total": "4"}}'),
        ("about four", "about four"),
    ],
)
def test_the_last_answer_is_asked_for_in_the_schema_and_read_by_it(words: str, output: Any) -> None:
    sim = begun(output_schema=PRICES, limits=Limits(max_steps=1))
    sim.say(answer({}))
    asked = request(sim)
    assert asked.schema is not None
    assert asked.schema["properties"]["answer"]["required"] == ["total"]
    end = only(sim.say(content=words), ev.RunFinished)
    assert (end.state, end.output) == ("max_steps_error", output)
    sound(sim)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"output_schema": {"type": "nonsense"}}, "output_schema "),
        ({"input_schema": {"type": "nonsense"}}, "input_schema "),
        ({"input_schema": {"type": "string"}}, "write `type: object`"),
        ({"output_schema": {"$ref": "https://example.org/schema.json"}}, "output_schema "),
        ({"checks": ["when: answr > 3"]}, "answr"),
        ({"checks": ["when: >"]}, "checks"),
        ({"checks": ["not a name"]}, "check name 'not a name'"),
        ({"checks": ["proofread", "proofread"]}, "twice"),
        ({"checks": "proofread"}, "checks as a list"),
        ({"timeouts": {"proofread": 3}}, "timeouts names proofread"),
    ],
)
def test_a_spec_says_what_is_wrong_with_its_checks(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words.replace("$", r"\$")):
        AgentSpec(name="a", description="b", **fields)


# --- the summary of a member's work


@pytest.mark.parametrize("wanted", [True, False])
def test_a_report_that_carries_a_summary(wanted: bool) -> None:
    sim = SimulatedRun(spec(provide_run_summary=wanted, planning_interval=5), OFFER)
    sim.begin("Add up.", parent="r0")
    sim.say(content="1. add")
    sim.say(call("add", a=1, b=2), content="I add.")
    sim.arrive(result("r1_1_0", "x" * 9000))
    sim.say(answer("3"))
    (command,) = [command for command in sim.owed() if isinstance(command, Send)]
    assert isinstance(command.message, Report)
    assert command.with_summary is wanted
    prompts = Prompts.load("tool_calling")
    work = work_of(sim.run, prompts)
    assert "Add up." in work[0]
    assert "add" in work[1]
    assert 2000 < len(work[2]) < 2200, "each message is cut"
    assert not [text for text in work if "1. add" in text or "I add." in text], "plans and prose are left out"
    assert prompts.managed_summary("boss", work).count("\n---\n") == len(work)
