"""Tests of what follows from an answer: each call has its own fate, in the model's order."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from cadre.engine.chat import Transcript
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied, Toolset
from cadre.journal.run import ActionStep, Phase
from cadre.prompting.prompts import Prompts
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.protocol.messages import ErrorInfo, Record, Task, ToolCall
from cadre.protocol.tagged import MAX_LEVELS
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec, Limits
from unit.loop.build import ADD, ANSWER, SPEC, SimulatedRun, call, kinds, only, report, result, sent, spec


def refusal(call: ev.RequestedCall, sim: SimulatedRun | None = None) -> ErrorInfo:
    """Return why the only call of an answer is refused."""
    error = only((sim or SimulatedRun().begin()).say(call), ev.CallRefused).error
    assert isinstance(error, ErrorInfo)
    return error


def last_step(sim: SimulatedRun) -> ActionStep:
    step = sim.run.steps[-1]
    assert isinstance(step, ActionStep)
    return step


@pytest.mark.parametrize("answer", ["the answer", "The answer.", "<your final answer>", "answer", "…", "..."])
def test_what_stands_for_an_answer_is_none(answer: str) -> None:
    sim = SimulatedRun().begin()
    assert kinds(sim.say(call("final_answer", answer=answer)))[:2] == ["ModelAnswered", "CallRefused"]
    assert sim.run.result is None


@pytest.mark.parametrize("answer", ["the answer is 42", "no", "?", "—", "", 42])
def test_a_short_answer_is_one(answer: Any) -> None:
    sim = SimulatedRun().begin()
    sim.say(call("final_answer", answer=answer))
    assert sim.run.result is not None
    assert (sim.run.result.state, sim.run.result.output) == ("success", answer)


def test_tool_member_and_refused_call_of_one_answer() -> None:
    sim = SimulatedRun().begin()
    events = sim.say(
        call("add", a=1, b=2),
        call("kid", task="Go.", additional_args={"x": 1}),
        call("nope"),
        content="I try",
    )
    assert kinds(events) == ["ModelAnswered", "ToolCalled", "DelegateStarted", "CallRefused"]
    assert only(events, ev.ToolCalled) == ev.ToolCalled(call="r1_1_0", tool="add", arguments={"a": 1, "b": 2})
    assert only(events, ev.DelegateStarted) == ev.DelegateStarted(
        call="r1_1_1", member="kid", task="Go.", inputs={"x": 1}
    )
    assert only(events, ev.CallRefused).call == "r1_1_2"
    assert sim.run.phase is Phase.ACTING
    assert [open.id for open in sim.run.open_calls()] == ["r1_1_0", "r1_1_1"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_observations_stand_in_the_models_order_whoever_answers_first(order: tuple[int, ...]) -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=1), call("kid", task="x"), call("nope"), call("add", a=2, b=2))
    arrivals: list[Record] = [result("r1_1_0", 2), report("r1_1_1", "done"), result("r1_1_3", 4)]
    for count, index in enumerate(order):
        events = sim.arrive(arrivals[index])
        assert ("StepFinished" in kinds(events)) == (count == 2), "the step ends with its last open call"
    step = last_step(sim)
    assert [seen.id for seen in step.calls] == ["r1_1_0", "r1_1_1", "r1_1_2", "r1_1_3"]
    assert [seen.observation for seen in step.calls] == ["2", "done", None, "4"]
    assert step.error is None
    assert sim.run.phase is Phase.THINKING
    assert sim.run.step == 2


def test_a_failed_call_leaves_its_siblings_alone() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=1), call("add", a=2, b=2))
    sim.arrive(result("r1_1_1", error=ErrorInfo("tool-failed", "kaput")))
    sim.arrive(result("r1_1_0", {"sum": 2}))
    good, bad = last_step(sim).calls
    assert (good.observation, good.error) == ('{"sum":2}', None)
    assert bad.error == ErrorInfo("tool-failed", "kaput")


def test_a_step_of_refused_calls_only_ends_at_once() -> None:
    sim = SimulatedRun().begin()
    refused = ["CallRefused", "CallRefused"]
    events = sim.say(call("nope"), call("add", a="1"))
    assert kinds(events) == ["ModelAnswered", *refused, "StepFinished", "ModelCalled"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ('{"a": 1,', "'add'"),
        ("[1]", "an array"),
        ('{"a":' * 5000 + "1" + "}" * 5000, ""),
        ('{"a": "\\ud83d"}', ""),
        ('{"a": 1e999}', ""),
    ],
)
def test_arguments_that_are_no_json_are_a_parsing_error_of_that_call(arguments: str, why: str) -> None:
    error = refusal(ev.RequestedCall("add", arguments))
    assert error.type == "AgentParsingError"
    assert why in error.message


@pytest.mark.parametrize("text", ["", "null"])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    assert '"a" is a required property' in refusal(ev.RequestedCall("add", text)).message


def test_an_unknown_tool_is_told_which_there_are() -> None:
    error = refusal(call("subtract"))
    assert error.type == "AgentToolCallError"
    assert "'subtract'" in error.message
    assert "add, look, kid, final_answer" in error.message
    assert "not running" not in error.message


def test_a_tool_that_the_spec_names_but_nobody_offers_is_said_to_be_down() -> None:
    sim = SimulatedRun(toolset=Toolset(tools={"add": ADD}, missing=["look"])).begin()
    assert "'look' is not running" in refusal(call("look", at="x"), sim=sim).message


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        (call("add", a="1", b=2), ["argument a", "integer"]),
        (call("add", a=1), ['"b"', "required"]),
        (call("add", a=1, b=2, c=3), ["'c'"]),
        (call("add", a=None, c=3), ["argument a", '"b"', "'c'"]),
        (call("kid", additional_args={}), ['"task"', "required"]),
        (call("kid", task="x", additional_args=[1]), ["argument additional_args"]),
        (call("final_answer"), ['"answer"', "required"]),
        (call("final_answer", answer=1, extra=2), ["'extra'"]),
    ],
)
def test_wrong_arguments_are_named(requested: ev.RequestedCall, words: list[str]) -> None:
    error = refusal(requested)
    assert error.type == "AgentToolCallError"
    assert f"{requested.name!r}" in error.message
    assert [word for word in words if word not in error.message] == []


def test_a_schema_that_is_none_or_would_read_files_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "schema.json"
    elsewhere.write_text('{"type": "object"}')
    for schema in ({"type": "nonsense"}, {"$ref": elsewhere.as_uri()}):
        card = ToolCard(name="odd", description="Odd.", input_schema=schema)
        error = refusal(call("odd", a=1), sim=SimulatedRun(toolset=Toolset(tools={"odd": card})).begin())
        assert error.type == "AgentToolCallError"
        assert "input schema" in error.message


def test_an_argument_that_names_a_variable_of_the_run_gets_its_value() -> None:
    sim = SimulatedRun().begin(inputs={"seven": 7, "brief": "All of it."})
    events = sim.say(call("add", a="seven", b=1), call("kid", task="brief"), call("add", a="eight", b=1))
    assert only(events, ev.ToolCalled).arguments["a"] == "seven", "the journal has the model's words"
    assert [message.arguments for message in sent(sim, ToolCall)] == [{"a": 7, "b": 1}]
    assert [message.task for message in sent(sim, Task)] == ["All of it."]
    assert "eight" in only(events, ev.CallRefused).error.message


def test_a_variable_in_place_of_a_members_arguments_is_its_value() -> None:
    sim = SimulatedRun().begin(inputs={"data": {"a": 1}, "other": 5})
    events = sim.say(call("kid", task="Go.", additional_args="data"), call("kid", task="Go.", additional_args="other"))
    assert only(events, ev.DelegateStarted).inputs == {"a": 1}
    assert "additional_args" in only(events, ev.CallRefused).error.message
    assert [message.inputs for message in sent(sim, Task)] == [{"a": 1}]


def test_arguments_that_no_journal_could_be_read_with_are_refused() -> None:
    deep: Any = 1
    for _ in range(MAX_LEVELS + 1):
        deep = [deep]
    assert "nested too deeply" in refusal(call("add", a=deep, b=1)).message
    bottomless = ev.RequestedCall("add", '{"a":' + "[" * 500 + "]" * 500 + ',"b":1}')
    assert "nested too deeply" in refusal(bottomless).message


CUT = "was cut off at the limit of tokens"
CODER = spec(kind="code")


@pytest.mark.parametrize(
    ("who", "content", "calls"),
    [
        (SPEC, "", [ev.RequestedCall("add", "")]),
        (SPEC, "", [call("add", a=1, b=2), ev.RequestedCall("add", '{"a": 1, "b')]),
        (SPEC, 'I call {"name": "add", "argu', []),
        (SPEC, "Let me think at length", []),
        (CODER, "Thought: all.\n<code>\nfor row in rows:\n    wipe(row)", []),
        (CODER, "Let me think at length", []),
    ],
)
def test_of_an_answer_that_was_cut_off_nothing_is_done(
    who: AgentSpec, content: str, calls: list[ev.RequestedCall]
) -> None:
    sim = SimulatedRun(who).begin()
    cut = ModelReplied(attempt=1, content=content, calls=calls, finish_reason="length", usage=Usage(1, 1))
    assert kinds(sim.arrive(cut)) == ["ModelAnswered", "StepFinished", "ModelCalled"]
    error = last_step(sim).error
    assert error is not None
    assert CUT in error.message


def test_a_model_that_runs_on_has_the_choice_from_then_on() -> None:
    """With some templates an answer that must be a call never ends."""
    sim, prompts = SimulatedRun(SPEC).begin(), Transcript(Prompts.load("tool_calling"))
    assert prompts.request(sim.run, "act").tool_choice is None
    sim.arrive(ModelReplied(attempt=1, content="and on", finish_reason="length", usage=Usage(1, 1)))
    assert prompts.request(sim.run, "act").tool_choice == "auto"
    sim.say(call("add", a=1, b=2))
    assert prompts.request(sim.run, "act").tool_choice == "auto"


def test_an_answer_that_is_whole_counts_wherever_it_was_cut() -> None:
    for who, content, calls in (
        (SPEC, "", [call("add", a=1, b=2)]),
        (CODER, "<code>\nprint(1)\n</code> And so", []),
    ):
        reply = ModelReplied(attempt=1, content=content, calls=calls, finish_reason="length", usage=Usage(1, 1))
        assert "StepFinished" not in kinds(SimulatedRun(who).begin().arrive(reply))


def test_a_name_that_no_endpoint_takes_is_not_sent_back_as_it_is() -> None:
    sim = SimulatedRun().begin()
    refused = only(sim.say(call("functions.echo an/ä" + "x" * 90)), ev.CallRefused)
    assert "functions.echo an/ä" in refused.error.message
    request = Transcript(Prompts.load("tool_calling")).request(sim.run, "act")
    (called,) = (one for message in request.messages for one in message.get("tool_calls", []))
    assert called["function"]["name"] == "functions_echo_an__" + "x" * 45


def test_a_final_answer_that_names_a_variable_is_its_value() -> None:
    sim = SimulatedRun().begin(inputs={"rows": [1, 2]})
    assert only(sim.say(call("final_answer", answer="rows")), ev.RunFinished).output == [1, 2]


@pytest.mark.parametrize("answer", ["42", 42, None, ["a"], {"k": 1.5}, ""])
def test_a_final_answer_alone_ends_the_run(answer: Any) -> None:
    sim = SimulatedRun().begin()
    events = sim.say(call("final_answer", answer=answer))
    assert kinds(events) == ["ModelAnswered", "StepFinished", "RunFinished"]
    finished = only(events, ev.RunFinished)
    assert (finished.state, finished.output, finished.error, finished.steps) == ("success", answer, None, 1)
    assert sim.run.phase is Phase.DONE


def test_a_wrong_final_answer_is_an_observation_and_the_run_goes_on() -> None:
    sim = SimulatedRun().begin()
    events = sim.say(ev.RequestedCall("final_answer", "{"))
    assert only(events, ev.CallRefused).error.type == "AgentParsingError"
    assert sim.run.phase is Phase.THINKING
    assert sim.run.step == 2


def test_a_final_answer_beside_other_calls_is_refused_while_they_are_made() -> None:
    sim = SimulatedRun().begin()
    events = sim.say(call("add", a=1, b=1), ANSWER)
    assert kinds(events) == ["ModelAnswered", "ToolCalled", "CallRefused"]
    assert "only call" in only(events, ev.CallRefused).error.message
    sim.arrive(result("r1_1_0", 2))
    assert sim.run.phase is Phase.THINKING


def test_delegation_stops_at_the_depth_limit() -> None:
    deep = spec(limits=Limits(depth=2))
    allowed = SimulatedRun(deep, run="r1_1_0").begin(path=["chief"])
    assert "DelegateStarted" in kinds(allowed.say(call("kid", task="x")))
    refused = SimulatedRun(deep, run="r1_1_0_1_0").begin(path=["chief", "vice"])
    message = refusal(call("kid", task="x"), sim=refused).message
    assert "2 levels deep" in message
    assert "chief > vice > boss" in message


def test_an_agent_is_not_asked_below_itself_unless_cycles_are_allowed() -> None:
    toolset = Toolset(members={"chief": AgentCard(name="chief", description="Leads.")})
    ask = call("chief", task="x")
    strict = SimulatedRun(spec(team=["chief"]), toolset=toolset, run="r1_1_0").begin(path=["chief"])
    assert "chief > boss" in refusal(ask, sim=strict).message
    loose = SimulatedRun(spec(team=["chief"], limits=Limits(cycles=1)), toolset=toolset, run="r1_1_0")
    assert "DelegateStarted" in kinds(loose.begin(path=["chief"]).say(ask))


def test_a_members_failure_is_an_error_that_names_it_and_its_reason() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("kid", task="x"), call("kid", task="y"), call("kid", task="z"))
    sim.arrive(report("r1_1_0", state="error", error=ErrorInfo("no-answer", "no key")))
    sim.arrive(report("r1_1_1", state="cancelled"))
    sim.arrive(report("r1_1_2", "half of it", state="max_steps_error", error=ErrorInfo("tool-failed", "limit")))
    failed, cancelled, partial = last_step(sim).calls
    assert failed.error is not None
    assert failed.error.code == "member-failed"
    assert re.search("'kid'.*no key", failed.error.message)
    assert "cancelled" in repr(cancelled.error)
    assert (partial.observation, partial.error) == ("half of it", None)


def test_long_observations_are_cut_in_the_middle() -> None:
    sim = SimulatedRun(spec(limits=Limits(observation_chars=100))).begin()
    sim.say(call("add", a=1, b=1), call("add", a=1, b=2), call("add", a=1, b=3), call("nope" * 100))
    sim.arrive(result("r1_1_0", "a" * 5000 + "z" * 5000))
    sim.arrive(result("r1_1_1", error=ErrorInfo("tool-failed", "e" * 10_000)))
    sim.arrive(result("r1_1_2", "x" * 100))
    long, failed, fits, refused = last_step(sim).calls
    assert re.fullmatch("a{50}.*9900 of 10000.*z{50}", str(long.observation), re.DOTALL)
    assert fits.observation == "x" * 100
    for cut in (failed, refused):
        assert cut.error is not None
        assert len(cut.error.message) < 200
