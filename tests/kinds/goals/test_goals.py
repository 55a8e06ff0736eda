"""Agents that work on goals, story by story: thoughts and one tool in each iteration, until `finish`."""

import json
from typing import Any

import msgspec
import pytest

from cadre.engine.contract import contract_problems, inputs_of
from cadre.errors import SpecError
from cadre.journal import events as ev
from cadre.journal.arrivals import ModelReplied
from cadre.journal.run import ActionStep
from cadre.kinds.goals.records import GoalsSpec, GoalThought
from cadre.protocol.messages import Decision, ErrorInfo, Fork, ToolResult
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.contract import TeamReach
from cadre.spec.kinds import sections
from cadre.spec.model import ModelSpec
from harness.texts import holds
from kinds.goals.build import answer, begun, goals_spec, request_of, says
from unit.loop.build import OFFER, SimulatedRun, kinds, only, result, sound, task


def texts(sim: SimulatedRun) -> list[tuple[str, str]]:
    return [(one["role"], one["content"]) for one in request_of(sim).messages]


def test_an_iteration_is_thoughts_and_one_tool() -> None:
    sim = begun()
    events = says(sim, "add", a=1, b=2)
    assert kinds(events) == ["ModelAnswered", "GoalThought", "ToolCalled"]
    assert only(events, GoalThought) == GoalThought(step=1, tool="add", text="I see.", speak="On it.")
    assert kinds(sim.arrive(result(sim.id(), 3))) == ["ToolAnswered", "StepFinished", "ModelCalled"]
    end = says(sim, "finish", response="3")[-1]
    assert isinstance(end, ev.RunFinished)
    assert (end.state, end.output) == ("success", "3")
    sound(sim)


def test_the_order_of_messages_is_superagis() -> None:
    sim = begun(GoalsSpec(goals=["Know the sum."], constraints=["Be quick."]), instructions="Use both hands.")
    first = answer("add", a=1, b=2)
    sim.say(content=first)
    sim.arrive(result(sim.id(), 3))
    messages = texts(sim)
    assert [role for role, _ in messages] == ["system", "system", "user", "assistant", "user"]
    system, now, goal, said, seen = (text for _, text in messages)
    assert "GOALS:\n1. Know the sum." in system
    assert "INSTRUCTION: Use both hands." in system
    assert "1. Be quick." in system
    assert '- "add": Adds., args json schema: {"a"' in system
    assert '"finish": ' in system
    assert now == "The current time and date is Thu 01 Jan 1970 00:01:40 UTC."
    assert goal == "One more goal, which comes with this run:\nAdd up."
    assert said == first
    assert seen.startswith("Tool add returned: 3\n\nDecide which tool comes next")


@pytest.mark.parametrize("name", ["LOOK", " look ", "l o o k", "Look"])
def test_names_are_compared_without_case_and_blanks(name: str) -> None:
    assert only(says(begun(), name, at="sky"), ev.ToolCalled).tool == "look"


@pytest.mark.parametrize("name", ["finish", "Finish", "FINISH ", "", " "])
def test_finish_and_an_empty_name_end_the_run(name: str) -> None:
    end = says(begun(), name, response="42")[-1]
    assert isinstance(end, ev.RunFinished)
    assert (end.state, end.output) == ("success", "42")


def test_an_end_without_a_response_answers_with_the_thought() -> None:
    end = says(begun(), "")[-1]
    assert isinstance(end, ev.RunFinished)
    assert end.output == "I see."


def test_an_unknown_tool_is_told_to_the_model() -> None:
    sim = begun()
    events = says(sim, "fly", to="Rome")
    assert kinds(events) == ["ModelAnswered", "GoalThought", "CallRefused", "StepFinished", "ModelCalled"]
    seen = texts(sim)[-1][1]
    assert holds(seen, "'fly'", "add, look, kid, finish")


def test_a_failed_tool_is_told_to_the_model() -> None:
    sim = begun()
    says(sim, "add", a=1, b=2)
    failed = msgspec.structs.replace(result(sim.id(), None), error=ErrorInfo("tool-failed", "no abacus"))
    assert isinstance(failed, ToolResult)
    sim.arrive(failed)
    assert holds(texts(sim)[-1][1], "add", "no abacus")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("I think I shall add.", "JSON object"),
        ("null", "JSON object"),
        ('{"thoughts": {"text": "hm"}}', "names no tool"),
        (
            '{"thoughts": {}, "tool": [{"name": "look", "args": {}}, {"name": "look", "args": {}}]}',
            "names 2 tools",
        ),
        ('{"tool": {"name": "add", "args": {"a": 1', "cannot be read"),
        ('{"tool": {"name": "add", "args": [1, 2]}}', "JSON object"),
        ('{"tool": {"name": "add", "args": {"a": __import__("os").getpid()}}}', "cannot be read"),
    ],
)
def test_what_cannot_be_read_goes_back_with_the_reason(content: str, why: str) -> None:
    sim = begun()
    events = sim.say(content=content)
    assert kinds(events) == ["ModelAnswered", "StepFinished", "ModelCalled"]
    told = texts(sim)[-1][1]
    assert why in told
    assert ". Answer with JSON" in told
    assert '"tool": {"name"' in told
    sound(sim)


VARIED = GoalsSpec(
    goals=["Find {{ city }}."], constraints=["Not {{ inputs.city | upper }}, {{ day | default('ever') }}."]
)


def test_variables_are_filled_from_the_inputs_and_what_they_hold_is_no_template() -> None:
    sim = SimulatedRun(goals_spec(VARIED, instructions="Use {{ city }} and {{ n }}."))
    sim.begin("Go.", inputs={"city": "Oslo {{ 7 * 7 }}", "n": [1, 2]})
    system = texts(sim)[0][1]
    assert "1. Find Oslo {{ 7 * 7 }}." in system
    assert "1. Not OSLO {{ 7 * 7 }}, ever." in system
    assert "Use Oslo {{ 7 * 7 }} and [1, 2]." in system
    says(sim, "think", task_description="Which?")
    assert "Find Oslo {{ 7 * 7 }}." in texts(sim)[-1][1]
    sound(sim)


@pytest.mark.parametrize("fields", [{}, {"instructions": "In {{ city }}."}])
def test_a_variable_without_a_value_ends_the_run_as_it_begins(fields: dict[str, Any]) -> None:
    section = None if fields else VARIED
    sim = SimulatedRun(goals_spec(section, **fields)).begin("Go.", inputs={"town": "Oslo"})
    assert sim.run.result is not None
    assert sim.run.result.error is not None
    assert (sim.run.result.error.code, sim.run.usage.model_calls) == ("no-value", 0)
    assert "'city'" in sim.run.result.error.message
    sound(sim)


def test_the_inputs_that_its_texts_read_are_part_of_its_contract() -> None:
    agent = goals_spec(VARIED, instructions="Use {{ inputs.n }}.")
    found = inputs_of(agent)
    assert (found.needed, found.known) == (frozenset({"city", "n"}), frozenset({"day"}))
    held = {"type": "object", "properties": {"n": {"type": "integer"}}}
    problems = contract_problems(msgspec.structs.replace(agent, input_schema=held), TeamReach(is_whole=False))
    assert {(one.level, one.path) for one in problems} == {
        ("error", "spec.goals.goals[0]"),
        ("error", "spec.goals.constraints[0]"),
        ("warning", "spec.instructions"),
    }


def test_what_cannot_be_read_again_and_again_ends_the_run() -> None:
    sim = begun(limits=Limits(repeats=3))
    for _ in range(3):
        events = sim.say(content="Hm.")
    end = events[-1]
    assert isinstance(end, ev.RunFinished)
    assert end.error is not None
    assert end.error.type == "LoopDetected"


@pytest.mark.parametrize(
    "content",
    [
        "```json\n" + answer("look", at="sky") + "\n```",
        "{'thoughts': {'text': 'Up.'}, 'tool': {'name': 'look', 'args': {'at': 'sky',},},}",
        '{"thoughts": "Up.", "tool": {"name": "look", "args": "{\\"at\\": \\"sky\\"}"}}',
        '{"thoughts": {}, "tool": "look", "args": {"at": "sky"}}',
        '{"name": "look", "arguments": {"at": "sky"}}',
        '{"thoughts": {}, "tool": [{"name": "look", "args": {"at": "sky"}}]}',
    ],
)
def test_answers_are_read_with_patience(content: str) -> None:
    called = only(begun().say(content=content), ev.ToolCalled)
    assert (called.tool, called.arguments) == ("look", {"at": "sky"})


def test_an_answer_that_was_cut_calls_nothing() -> None:
    sim = begun()
    cut = '{"thoughts": {"text": "x"}, "tool": {"name": "look", "args": {"at": "sky"'
    assert sim.run.model is not None
    events = sim.arrive(ModelReplied(attempt=1, content=cut, finish_reason="length"))
    assert "ToolCalled" not in kinds(events)


def test_to_think_is_a_model_call_of_its_own_and_no_executors() -> None:
    sim = begun()
    events = says(sim, "Think", task_description="Is it worth it?")
    assert kinds(events) == ["ModelAnswered", "GoalThought", "StepFinished", "StepStarted", "ModelCalled"]
    assert only(events, ev.ModelCalled).purpose == "think"
    question = request_of(sim).messages
    assert len(question) == 1
    assert "Is it worth it?" in question[0]["content"]
    assert "1. Know the sum.\n2. Add up." in question[0]["content"]
    assert kinds(sim.say(content="Yes, it is.")) == ["ModelAnswered", "StepFinished", "ModelCalled"]
    assert "Tool think returned: Yes, it is." in texts(sim)[-1][1]
    assert [step.number for step in sim.run.steps if isinstance(step, ActionStep)] == [1, 2]
    sound(sim)


def test_a_fork_at_a_thought_thinks_first() -> None:
    sim = begun()
    says(sim, "think", task_description="Is it worth it?")
    steps = [step for step in sim.run.steps if isinstance(step, ActionStep)]
    fork = SimulatedRun(goals_spec(), run="r2")
    fork.arrive(task("Add up.", run="r2", forks=Fork(run="r1", at=2)), prefix=list(steps))
    assert fork.run.model is not None
    assert (fork.run.model.purpose, fork.run.model.step) == ("think", 2)
    fork.say(content="No.")
    assert "Tool think returned: No." in texts(fork)[-1][1]
    sound(fork)


def test_where_it_may_not_think_there_is_no_such_tool() -> None:
    sim = begun(GoalsSpec(think=False))
    assert '"think"' not in texts(sim)[0][1]
    assert "Unknown tool 'think'" in only(says(sim, "think", task_description="?"), ev.CallRefused).error.message


def test_the_limit_of_iterations_ends_with_what_was_found() -> None:
    sim = begun(GoalsSpec(iterations=2), limits=Limits(max_steps=20))
    for _ in range(2):
        says(sim, "add", a=1, b=2)
        events = sim.arrive(result(sim.id(), 3))
    end = events[-1]
    assert isinstance(end, ev.RunFinished)
    assert (end.state, "add: 3" in end.output) == ("max_steps_error", True)
    assert end.error is not None
    assert "limit of 2 steps" in end.error.message
    sound(sim)


def test_a_thought_counts_as_an_iteration() -> None:
    sim = begun(GoalsSpec(iterations=1))
    end = says(sim, "think", task_description="?")[-1]
    assert isinstance(end, ev.RunFinished)
    assert end.state == "max_steps_error"


def test_the_answer_goes_through_schema_and_checks() -> None:
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    sim = begun(output_schema=schema, checks=["when: answer.sum > 2"])
    assert '"sum": {"type": "integer"}' in texts(sim)[0][1]
    assert kinds(says(sim, "finish", response="three"))[-1] == "ModelCalled"
    assert holds(texts(sim)[-1][1], '"three"', '"object"')
    assert kinds(says(sim, "finish", response={"sum": 1}))[-1] == "ModelCalled"
    end = says(sim, "finish", response='{"sum": 3}')[-1]
    assert isinstance(end, ev.RunFinished)
    assert end.output == {"sum": 3}
    sound(sim)


def test_a_call_waits_for_permission_and_what_a_person_says_is_read() -> None:
    sim = begun(permission="restricted")
    assert kinds(says(sim, "add", a=1, b=2))[-1] == "ApprovalRequested"
    held = sim.run.open_calls()[0].id
    sim.arrive(Decision(id="d1", tree="r1", run="r1", at=2.0, call=held, verdict="rejected", feedback="Use a slate."))
    told = texts(sim)[-1][1]
    assert "'add'" in told
    sound(sim)


def test_a_plan_may_come_first() -> None:
    sim = begun(planning_interval=3)
    assert sim.run.model is not None
    assert sim.run.model.purpose == "plan"
    sim.say(content="First add.")
    assert "First add." in str(texts(sim))


def test_the_schema_has_thoughts_and_every_tool() -> None:
    sim = begun(model=ModelSpec(structured="schema"))
    schema = request_of(sim).schema
    assert schema is not None
    names = [json.dumps(one["properties"]["name"]) for one in schema["properties"]["tool"]["anyOf"]]
    assert all(any(f'"{name}"' in one for one in names) for name in [*OFFER.tools, "kid", "think", "finish"])
    assert list(schema["properties"]["thoughts"]["properties"]) == [
        "text",
        "reasoning",
        "plan",
        "criticism",
        "speak",
    ]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"section": GoalsSpec(goals=[" "])}, r"goals.goals"),
        ({"section": GoalsSpec(iterations=0)}, r"goals.iterations"),
        ({"section": GoalsSpec(goals=["Find {{ city."])}, r"goals.goals"),
        ({"section": GoalsSpec(), "instructions": "{{ city."}, r"instructions"),
        ({"section": GoalsSpec(), "tools": ["finish"]}, "'finish'"),
        ({"section": GoalsSpec(), "tools": ["think"]}, "'think'"),
    ],
)
def test_a_section_that_cannot_hold_is_refused(fields: dict[str, Any], why: str) -> None:
    given = {"kind": "goals", **fields}
    given |= sections(given.pop("section"))
    with pytest.raises(SpecError, match=why):
        AgentSpec(name="boss", description="Leads.", **given)
