"""Agents that carry out plans, story by story: steps side by side, results passed on, plans made again, a result."""

from typing import Any

import msgspec
import pytest

from cadre.journal import events as ev
from cadre.journal.run import Result
from cadre.kinds.plan.records import PlanMade, PlanRefused
from cadre.loop.fork import prefix_of
from cadre.protocol.messages import Fork
from harness.texts import holds
from kinds.plan.build import (
    ADD,
    BROKEN,
    LOOK,
    begun,
    child_of,
    decide,
    done,
    failed,
    plan,
    planner,
    purpose,
    reported,
    state,
    states,
    tasks,
    text,
)
from unit.loop.build import OFFER, SimulatedRun, call, kinds, only, result, sound, task

SIDE_BY_SIDE: list[dict[str, Any]] = [
    {"step": 1, **ADD},
    {"step": 2, **LOOK, "needs": []},
    {"step": 3, "action": "add", "args": {"a": "{{ step_1 }}", "b": 1}},
]


def end_of(sim: SimulatedRun) -> Result:
    assert sim.run.result is not None
    return sim.run.result


def test_steps_begin_when_what_they_need_is_done() -> None:
    sim = begun(*SIDE_BY_SIDE)
    assert states(sim) == {1: "running", 2: "running", 3: "pending"}
    events = done(sim, 1, 40)
    assert kinds(events) == ["ToolAnswered", "PlanStepFinished", "PlanStepStarted", "ToolCalled"]
    assert only(events, ev.ToolCalled).arguments == {"a": 40, "b": 1}
    done(sim, 2, "blue")
    events = done(sim, 3, 41)
    assert kinds(events) == ["ToolAnswered", "PlanStepFinished", "PlanDone", "StepFinished", "RunFinished"]
    assert (end_of(sim).state, end_of(sim).output) == ("success", 41)
    sound(sim)


def test_a_plan_in_which_no_step_says_what_it_needs_is_done_in_its_order() -> None:
    sim = begun(ADD, LOOK)
    assert states(sim) == {1: "running", 2: "pending"}
    done(sim, 1)
    assert states(sim) == {1: "done", 2: "running"}
    sound(sim)


def test_the_agent_carries_out_a_step_in_a_run_without_a_plan() -> None:
    sim = begun(ADD, {"task": "Explain {{ step_1 }}.", "details": "Be brief.", "needs": [1]}, role="A clerk.")
    done(sim, 1, 3)
    (sent,) = tasks(sim)
    assert (sent.agent, sent.task) == ("boss", "Explain 3.\n\nBe brief.")
    assert sent.inputs == {"step_1": 3}
    child = child_of(sim, sent)
    assert "A clerk." in text(child)
    child.say(call("add", a=1, b=2))
    child.arrive(result(child.id(), 3))
    child.say(call("final_answer", answer="three"))
    sim.arrive(reported(child))
    assert end_of(sim).output == "three"
    sound(sim)
    sound(child)


def test_a_member_does_a_step() -> None:
    sim = begun({"action": "kid", "task": "Look at {{ objective }}", "args": {"hue": 1}}, task="the sky")
    (sent,) = tasks(sim)
    assert (sent.agent, sent.task, sent.inputs) == ("kid", "Look at the sky", {"hue": 1})


def test_the_model_makes_a_plan() -> None:
    sim = begun(task="Add up.")
    assert purpose(sim) == "make_plan"
    assert "Add up." in text(sim)
    events = sim.say(content=f"Here:\n```json\n{plan(*SIDE_BY_SIDE)}\n```")
    assert only(events, PlanMade).origin == "model"
    assert states(sim) == {1: "running", 2: "running", 3: "pending"}
    sound(sim)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([{"action": "sing", "task": "x"}], "'sing'"),
        ([{"step": 1, "task": "x", "needs": [2]}], "needs step 2, "),
        ([{"step": 1, "task": "x", "needs": [2]}, {"step": 2, "task": "y", "needs": [1]}], "in a circle"),
        ([{"step": 1, "task": "x"}, {"step": 1, "task": "y"}], "a number of"),
        ([{"action": "add", "args": {"a": "many", "b": 1}}], "Wrong arguments for 'add'"),
        ([{"task": "{{ weather }}"}], "reads 'weather'"),
        ([{"task": "x", "why": "y"}], "unknown key 'why'"),
        ([{"action": "execute"}], "says no task"),
        ([], "has no steps"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_told_to_the_model(steps: list[Any], reason: str) -> None:
    sim = begun()
    refused = only(sim.say(content=plan(*steps)), PlanRefused)
    assert reason in refused.reason
    assert reason in text(sim)
    sim.say(content=plan(ADD))
    assert states(sim) == {1: "running"}
    sound(sim)


def test_an_unknown_action_is_told_to_the_model_and_skipped_in_its_last_try() -> None:
    steps = (
        {"step": 1, "action": "fly", "task": "x"},
        {"step": 2, **ADD, "needs": [1]},
        {"step": 3, **LOOK, "needs": []},
    )
    sim = begun(task="Add up.", tries=2)
    assert "'fly'" in only(sim.say(content=plan(*steps)), PlanRefused).reason
    made = only(sim.say(content=plan(*steps)), PlanMade)
    assert ([step.step for step in made.steps], made.origin) == ([2, 3], "model")
    assert "step 1 (fly)" in made.reason
    assert states(sim) == {2: "running", 3: "running"}
    sound(sim)


def test_the_basic_plan_is_the_fall_back() -> None:
    sim = begun(task="Add up.", tries=2)
    sim.say(content="I would rather not.")
    events = sim.say(content="No.")
    assert only(events, PlanRefused).given_up
    made = only(events, PlanMade)
    assert (made.origin, made.steps[0].task) == ("basic", "Add up.")
    assert "no JSON" in made.reason
    assert [task.task for task in tasks(sim)] == ["Add up."]
    sound(sim)


def test_an_endpoint_that_fails_is_no_end_of_the_run() -> None:
    sim = begun(task="Add up.", tries=1)
    sim.fail("no such model", final=True)
    assert [task.task for task in tasks(sim)] == ["Add up."]
    sound(sim)


def test_a_failed_step_is_planned_anew_when_the_others_are_over() -> None:
    sim = begun(*SIDE_BY_SIDE)
    failed(sim, 1)
    assert sim.run.model is None
    done(sim, 2, "blue")
    assert purpose(sim) == "replan"
    asked = text(sim)
    assert 'step 1 (add): {"a":1,"b":2}\nfailed: no abacus' in asked
    assert "done: blue" in asked
    assert "skipped" in asked
    sim.say(content=plan({"step": 4, "action": "add", "args": {"a": 5, "b": 5}}, {"step": 2, **LOOK}))
    assert states(sim) == {1: "replaced", 2: "done", 4: "running"}
    done(sim, 4, 10)
    assert end_of(sim).output == 10
    sound(sim)


def test_a_failed_step_is_tried_again_under_its_number() -> None:
    sim = begun(ADD)
    failed(sim, 1)
    sim.say(content=plan({"step": 1, **ADD}))
    assert states(sim) == {1: "running"}
    done(sim, 1)
    assert end_of(sim).output == 3


def test_plans_are_made_anew_so_many_times() -> None:
    sim = begun(ADD, replans=1)
    failed(sim, 1)
    sim.say(content=plan({"step": 1, **ADD}))
    failed(sim, 1)
    assert end_of(sim).state == "error"
    assert "step 1 has failed: no abacus" in (end_of(sim).error or BROKEN).message
    sound(sim)


def test_a_model_that_has_no_other_plan_ends_it() -> None:
    sim = begun(ADD, tries=1)
    failed(sim, 1)
    sim.say(content="I give up.")
    assert end_of(sim).state == "error"
    sound(sim)


def test_a_call_that_is_refused_fails_its_step() -> None:
    sim = begun({"action": "add", "args": {"a": "{{ task }}", "b": 1}}, task="many", replans=0)
    assert sim.run.waits == {}
    assert states(sim) == {1: "failed"}
    assert "Wrong arguments for 'add'" in (end_of(sim).error or BROKEN).message
    sound(sim)


def test_a_call_that_is_refused_beside_others_fails_its_step_once_one_of_them_is_over() -> None:
    wrong = {"step": 1, "action": "add", "args": {"a": "{{ task }}", "b": 1}, "needs": []}
    sim = begun(wrong, {"step": 2, **LOOK, "needs": []}, task="many")
    assert states(sim) == {1: "running", 2: "running"}
    done(sim, 2, "blue")
    assert states(sim) == {1: "failed", 2: "done"}
    assert purpose(sim) == "replan"
    sound(sim)


def test_a_template_without_a_value_fails_its_step() -> None:
    sim = begun(ADD, {"task": "{{ step_1.price }}"}, replans=0)
    done(sim, 1)
    assert states(sim) == {1: "done", 2: "failed"}
    assert end_of(sim).state == "error"
    sound(sim)


def test_the_answer_may_be_written_from_all_results() -> None:
    sim = begun(*SIDE_BY_SIDE, conclude=True, replans=0)
    failed(sim, 1)
    done(sim, 2, "blue")
    assert purpose(sim) == "conclude"
    assert "done: blue" in text(sim)
    sim.say(content="It is blue, and nobody could add.")
    assert end_of(sim).output == "It is blue, and nobody could add."
    sound(sim)


def test_an_answer_that_does_not_pass_is_written_anew() -> None:
    sim = begun(ADD, fields={"output_schema": {"type": "object", "required": ["sum"]}})
    done(sim, 1, 3)
    assert purpose(sim) == "conclude"
    assert "Your last answer could not be taken" in text(sim)
    sim.say(content='{"sum": 3}')
    assert end_of(sim).output == {"sum": 3}
    sound(sim)


def test_the_result_is_made_into_the_answer() -> None:
    sim = begun(ADD, result="{{ result * 2 }}")
    done(sim, 1, 21)
    assert end_of(sim).output == 42
    sim = begun(ADD, result={"tool": "add", "arguments": {"a": "{{ result }}", "b": "{{ step_1 }}"}})
    events = done(sim, 1, 21)
    assert only(events, ev.ToolCalled).arguments == {"a": 21, "b": 21}
    sim.arrive(result(sim.run.open_calls()[0].id, 42))
    assert end_of(sim).output == 42
    sound(sim)
    sim = begun(ADD, result={"tool": "add"})
    done(sim, 1)
    assert (end_of(sim).error or BROKEN).code == "invalid-call"
    sound(sim)


def test_a_plan_comes_with_the_task() -> None:
    sim = begun(given={"inputs": {"plan": [ADD, "Say it."]}})
    assert [item.plan.action for item in state(sim).items] == ["add", "execute"]
    task = '{"id": "t-1", "objective": "Add up.", "plan": [{"action": "look", "args": {"at": "sea"}}]}'
    sim = begun(task=task)
    assert sim.run.open_calls()[0].arguments == {"at": "sea"}
    sim = begun(task='{"id": "t-1", "objective": "Add up."}', planning=False)
    assert [task.task for task in tasks(sim)] == ["Add up."]
    sim = begun(given={"inputs": {"plan": [{"action": "sing"}]}})
    assert "'sing'" in (end_of(sim).error or BROKEN).message


def test_the_agents_own_prompt_wins_over_role_and_objective() -> None:
    prompt = {"system": "Answer for {{ objective }}: {{ step_1 }}.", "user": "Now: {{ task }}"}
    steps = (ADD, {"task": "Explain.", "needs": [1]})
    sim = begun(*steps, task="Ada", role="A clerk.", objective="Order.", prompt=prompt)
    done(sim, 1, 7)
    (sent,) = tasks(sim)
    child = child_of(sim, sent)
    assert sent.task == "Now: Explain."
    assert "Answer for Ada: 7." in text(child)
    assert "A clerk." not in text(child)


def test_a_person_agrees_before_anything_is_done() -> None:
    sim = begun(ADD, approve_plan=True)
    asked = sim.run.open_calls()[0]
    assert (asked.kind, asked.arguments["plan"][0]["action"]) == ("question", "add")
    decide(sim, "approved")
    assert states(sim) == {1: "running"}
    sound(sim)
    sim = begun(ADD, approve_plan=True)
    decide(sim, "rejected")
    assert end_of(sim).state == "error"
    sim = begun(ADD, approve_plan=True)
    decide(sim, "rejected", "Look first.")
    assert purpose(sim) == "make_plan"
    assert "Look first." in text(sim)
    sim.say(content=plan(LOOK))
    decide(sim, "approved")
    assert states(sim) == {1: "running"}
    assert sim.run.open_calls()[0].name == "look"
    sound(sim)


def test_a_plan_may_name_a_tool_that_is_not_there_at_the_moment() -> None:
    sim = SimulatedRun(planner(ADD, LOOK, replans=0), msgspec.structs.replace(OFFER, tools={}, missing=["add", "look"]))
    sim.begin("Do it.")
    events = [event for entry in sim.journal() for event in entry.events]
    made = only(events, PlanMade)
    assert (made.origin, [step.action for step in made.steps]) == ("given", ["add", "look"])
    refused = [event for event in events if isinstance(event, ev.CallRefused)]
    assert "'add'" in refused[0].error.message


def test_a_person_agrees_to_the_plan_that_is_made_where_no_model_answers() -> None:
    sim = begun(approve_plan=True, tries=1)
    sim.fail(final=True)
    assert sim.run.open_calls()[0].kind == "question"
    assert sim.run.model is None
    decide(sim, "approved")
    assert states(sim) == {1: "running"}
    sound(sim)


def test_a_call_that_a_person_must_approve_holds_its_step() -> None:
    sim = begun(*SIDE_BY_SIDE, fields={"approvals": {"add": "always"}})
    decide(sim, "rejected", "Too dear.")
    done(sim, 2, "blue")
    assert holds(text(sim), "'add'", "Too dear.")
    sim = begun(*SIDE_BY_SIDE, fields={"approvals": {"add": "always"}})
    decide(sim, "approved")
    done(sim, 1, 2)
    assert states(sim)[3] == "running"
    sound(sim)


def test_it_is_forked_with_its_plan() -> None:
    sim = begun(*SIDE_BY_SIDE, replans=0)
    failed(sim, 1)
    done(sim, 2, "blue")
    at = Fork(run="r1", at=2)
    fork = SimulatedRun(planner(*SIDE_BY_SIDE), run="r2")
    fork.arrive(task("Do it.", run="r2", forks=at), prefix=prefix_of(sim.run, at).steps)
    assert states(fork) == {1: "running", 2: "running", 3: "pending"}
    sound(fork)
