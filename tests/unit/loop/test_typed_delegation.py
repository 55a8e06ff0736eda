"""A member with schemas: offered with them, called with arguments that fit, and reported as the value that it gave."""

import json
from typing import Any

import msgspec
import pytest

from cadre.engine.chat import functions
from cadre.journal import events as ev
from cadre.journal.arrivals import Toolset
from cadre.kinds.plan.records import PlanRefused
from cadre.kinds.plan.section import PlanSpec
from cadre.kinds.solution.schema import solution_schema
from cadre.prompting.prompts import prompts_for
from cadre.prompting.tool_text import (
    docstring_of,
    signature_of,
    to_code_call,
    to_listed_prompt,
    to_short_prompt,
    to_tool_calling_prompt,
)
from cadre.protocol.cards import AgentCard
from cadre.protocol.messages import Task
from cadre.spec.kinds import sections
from cadre.spec.member_call import call_schema
from harness.texts import holds
from kinds.code.build import asks, code_call, yielded
from kinds.plan.build import plan
from unit.loop.build import SimulatedRun, call, kinds, only, report, sent, sound, spec, task

TAKES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "nights": {"type": "integer", "minimum": 1, "default": 1},
    },
    "required": ["city"],
    "additionalProperties": False,
}
GIVES: dict[str, Any] = {
    "type": "object",
    "properties": {"total": {"type": "number"}},
    "required": ["total"],
}
CLERK = AgentCard(name="clerk", description="Books rooms.", input_schema=TAKES, output_schema=GIVES)
TYPED = Toolset(members={"clerk": CLERK})
LEAD = spec(tools=[], team=["clerk"])


def lead(**fields: Any) -> SimulatedRun:
    return SimulatedRun(msgspec.structs.replace(LEAD, **fields), TYPED)


def test_the_schemas_are_offered() -> None:
    sim = lead().begin()
    function = functions(sim.run)[0]["function"]
    assert function["parameters"] == call_schema(TAKES)
    assert '"total"' in function["description"]
    for written in (to_tool_calling_prompt, to_short_prompt, to_listed_prompt):
        assert holds(written(CLERK), '"city"', '"nights"', '"total"')
    assert signature_of(CLERK) == "(task: str, city: str, nights: int = 1) -> dict"
    assert '"total"' in docstring_of(CLERK)
    assert to_code_call(CLERK) == "clerk(task='…', city='…')"


@pytest.mark.parametrize(
    "arguments",
    [
        {"task": "Book.", "city": "Oslo", "nights": 2},
        {"task": "Book.", "additional_args": {"city": "Oslo", "nights": 2}},
        {"task": "Book.", "city": "town", "nights": "stay"},
        {"task": "Book.", "additional_args": {"city": "town", "nights": "stay"}},
        {"task": "Book.", "additional_args": "both"},
    ],
)
def test_the_arguments_become_the_inputs_of_the_members_run(arguments: dict[str, Any]) -> None:
    given = {"town": "Oslo", "stay": 2, "both": {"city": "Oslo", "nights": 2}}
    sim = lead().begin(inputs=given)
    sim.say(call("clerk", **arguments))
    (begun,) = sent(sim, Task)
    assert (begun.agent, begun.task, begun.inputs) == ("clerk", "Book.", {"city": "Oslo", "nights": 2})
    (step,) = [one for one in [sim.run.current] if one is not None]
    assert step.calls[0].arguments.keys() == {"task", "city", "nights"}
    sound(sim)


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ({"task": "Book.", "city": 5}, ["argument city"]),
        ({"task": "Book."}, ['"city"']),
        ({"city": "Oslo"}, ['"task"']),
        ({"task": "Book.", "city": "Oslo", "nights": 0}, ["argument nights"]),
        ({"task": "Book.", "city": "Oslo", "nihgts": 1}, ["'nihgts'", "'nights'"]),
        ({"task": "Book.", "additional_args": {"city": 5}}, ["argument city"]),
    ],
)
def test_a_call_that_does_not_fit_is_refused_before_a_run_begins(arguments: dict[str, Any], places: list[str]) -> None:
    sim = lead().begin()
    events = sim.say(call("clerk", **arguments))
    error = only(events, ev.CallRefused).error
    assert error.code == "invalid-call"
    assert [place for place in places if place not in error.message] == []
    assert (sent(sim, Task), sim.run.result) == ([], None)
    sound(sim)


def test_the_report_carries_the_value_as_json() -> None:
    said = prompts_for(spec()).managed_report("clerk", {"total": 3.5})
    assert '{"total": 3.5}' in said


def test_code_has_the_value_itself() -> None:
    sim = lead(kind="code").begin()
    sim.say(content="Ask.\n<code>\nclerk(task='Book.', city='Oslo')['total']\n</code>")
    signatures = {one.name: one.signature for one in code_call(sim).functions}
    assert signatures["clerk"] == signature_of(CLERK)
    sim.arrive(yielded(asks("clerk", task="Book.", city="Oslo")))
    (member,) = sent(sim, Task)
    assert member.inputs == {"city": "Oslo"}
    sim.arrive(msgspec.structs.replace(report(member.run, "", agent="clerk"), output={"total": 3.5}))
    (exchange,) = code_call(sim).exchanges
    assert exchange.replies[0].value == {"total": 3.5}
    sound(sim)


def test_code_reads_the_report_of_a_member_that_ran_out_of_steps() -> None:
    sim = lead(kind="code").begin()
    sim.say(content="Ask.\n<code>\nclerk(task='Book.', city='Oslo')\n</code>")
    sim.arrive(yielded(asks("clerk", task="Book.", city="Oslo")))
    (member,) = sent(sim, Task)
    late = report(member.run, "as far as I came", agent="clerk")
    sim.arrive(msgspec.structs.replace(late, state="max_steps_error", text="Reached the limit."))
    assert code_call(sim).exchanges[0].replies[0].value == "Reached the limit."


@pytest.mark.parametrize(
    ("args", "refused"),
    [
        ({"city": "Oslo"}, ""),
        ({"city": 5}, "argument city"),
        ({}, '"city"'),
        ({"city": "Oslo", "x": 1}, "'x'"),
    ],
)
def test_a_plan_is_held_against_the_members_schema(args: dict[str, Any], refused: str) -> None:
    sim = lead(kind="plan", **sections(PlanSpec())).begin()
    events = sim.say(content=plan({"action": "clerk", "task": "Book.", "args": args}))
    if refused:
        assert refused in only(events, PlanRefused).reason
        assert sent(sim, Task) == []
    else:
        assert [one.inputs for one in sent(sim, Task)] == [{"city": "Oslo"}]
    sound(sim)


def test_a_step_of_a_plan_whose_value_does_not_fit_fails_before_a_run_begins() -> None:
    steps = [{"action": "clerk", "task": "Book.", "args": {"city": "{{ inputs.n }}"}}]
    sim = lead(kind="plan", **sections(msgspec.convert({"steps": steps, "replans": 0}, PlanSpec)))
    sim.begin(inputs={"n": 5})
    assert sent(sim, Task) == []
    assert sim.run.result is not None
    assert "argument city" in str(sim.run.result.error)


def test_a_solution_is_held_to_the_members_schema() -> None:
    sim = lead(kind="solution").begin()
    written = str(solution_schema(sim.run))
    assert "'city'" in written
    arguments = {"task": "Book.", "city": "Oslo", "nights": None}
    sim.say(content=json.dumps({"solution": {"calls": [{"name": "clerk", "arguments": arguments}], "output": None}}))
    assert [one.inputs for one in sent(sim, Task)] == [{"city": "Oslo"}]


def test_a_policy_reads_the_typed_arguments_however_they_are_written() -> None:
    asked = {"clerk": "when: nights > 1"}
    for arguments in ({"city": "Oslo", "nights": 2}, {"additional_args": {"city": "Oslo", "nights": 2}}):
        sim = lead(approvals=asked).begin()
        events = sim.say(call("clerk", task="Book.", **arguments))
        request = only(events, ev.ApprovalRequested)
        assert request.arguments == {"task": "Book.", "city": "Oslo", "nights": 2}
    sim = lead(approvals=asked).begin()
    assert kinds(sim.say(call("clerk", task="Book.", city="Oslo"))) == ["ModelAnswered", "DelegateStarted"]


def test_a_task_of_a_manager_that_does_not_fit_any_more_ends_without_a_model_call() -> None:
    """The member's file has changed since its manager read its card."""
    member = SimulatedRun(spec(name="clerk", input_schema=TAKES, output_schema=GIVES), Toolset())
    member.arrive(task("Book.", run="r1_1_0", parent="r1", agent="clerk", inputs={"city": 5}))
    assert member.run.result is not None
    assert member.run.result.error is not None
    assert (member.run.result.error.code, member.run.usage.model_calls) == ("invalid-call", 0)
    assert "inputs.city" in member.run.result.error.message
    sound(member)


def test_a_member_with_an_output_schema_is_not_asked_for_a_report_in_three_parts() -> None:
    prompts = prompts_for(spec())
    assert "### 1." in prompts.managed_task("clerk", "Book.")
    typed = prompts.managed_task("clerk", "Book.", GIVES)
    assert ("### 1." in typed, '"total"' in typed) == (False, True)
