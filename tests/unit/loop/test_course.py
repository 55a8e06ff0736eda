"""Tests of how a run begins, when it plans, what follows a step, and how it goes on from an earlier run."""

import msgspec
import pytest
from msgspec.structs import replace

from cadre.journal import events as ev
from cadre.journal.arrivals import Toolset
from cadre.journal.run import ActionStep, AnswerStep, Phase, PlanningStep, Step, TaskStep
from cadre.protocol.usage import Usage
from cadre.spec.agent import Limits
from unit.loop.build import (
    ADD,
    ANSWER,
    KID,
    OFFER,
    SimulatedRun,
    call,
    kinds,
    only,
    report,
    result,
    spec,
    task,
)


def test_a_task_is_accepted_with_the_spec_and_the_offer_of_this_moment() -> None:
    sim = SimulatedRun()
    events = sim.arrive(task("Count.", images=["blob:1"]))
    assert kinds(events) == ["RunAccepted", "ToolsetChanged", "ModelCalled"]
    assert only(events, ev.RunAccepted).spec == sim.spec
    assert only(events, ev.ModelCalled) == ev.ModelCalled(purpose="act", step=1, attempt=1, cause="r1:task")
    run = sim.run
    assert (run.agent, run.phase, run.step, run.started_at) == ("boss", Phase.THINKING, 1, 100.0)
    assert run.steps == [TaskStep(task="Count.", images=["blob:1"])]
    assert run.tools == OFFER.tools
    assert run.members == OFFER.members


def test_an_answer_stores_nothing_about_what_its_endpoint_does_not_say() -> None:
    """Each byte of an entry is stored for every step of every run."""
    answered = only(SimulatedRun().begin().say(call("add", a=1, b=2)), ev.ModelAnswered)
    assert set(msgspec.to_builtins(answered)) == {"type", "step", "calls", "usage", "seconds"}


def test_additional_arguments_are_named_in_the_task_text() -> None:
    sim = SimulatedRun().begin("Count.", inputs={"rows": [1, 2]})
    (step,) = sim.run.steps
    assert isinstance(step, TaskStep)
    assert step.task.startswith("Count.\n")
    assert '{"rows":[1,2]}' in step.task


def test_a_delegated_task_is_marked_and_knows_its_parent() -> None:
    sim = SimulatedRun(run="r1_1_0")
    sim.arrive(task(run="r1_1_0", parent="r1"))
    (step,) = sim.run.steps
    assert isinstance(step, TaskStep)
    assert step.delegated
    assert sim.run.parent == "r1"


def test_what_the_model_may_call_is_journaled_only_when_it_changes() -> None:
    sim = SimulatedRun(toolset=Toolset(tools={"add": ADD}, missing=["look"])).begin()
    assert "ToolsetChanged" not in kinds(sim.say(content="no call"))
    sim.toolset = Toolset(tools={"add": ADD}, members={"kid": KID}, missing=["look"])
    changed = only(sim.say(content="no call"), ev.ToolsetChanged)
    assert (changed.tools, changed.members, changed.missing) == ([ADD], [KID], ["look"])
    assert list(sim.run.members) == ["kid"]


def planned_before(interval: int | None, steps: int) -> list[int]:
    """The steps before which a run of so many fruitless steps plans."""
    sim = SimulatedRun(spec(planning_interval=interval, limits=Limits(max_steps=steps))).begin()
    planned = []
    while sim.run.model is not None and sim.run.model.purpose != "final":
        if sim.run.model.purpose == "plan":
            planned.append(sim.run.model.step)
            sim.say(content="think")
        sim.say(content=f"no call in step {sim.run.step}")
    actions = [step.number for step in sim.run.steps if isinstance(step, ActionStep)]
    assert actions == list(range(1, steps + 1)), "plans take no step number"
    return planned


@pytest.mark.parametrize(
    ("interval", "expected"), [(None, []), (1, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [1, 4, 7]), (8, [1]), (99, [1])]
)
def test_plans_are_made_before_steps_1_then_every_interval(interval: int | None, expected: list[int]) -> None:
    assert planned_before(interval, 8) == expected


def test_a_plan_is_followed_by_the_step_it_is_for_and_kept_before_it() -> None:
    sim = SimulatedRun(spec(planning_interval=1)).begin()
    events = sim.say(content="first this")
    assert kinds(events) == ["ModelAnswered", "ModelCalled"]
    assert only(events, ev.ModelCalled).purpose == "act"
    assert sim.run.step == 1
    sim.say(content="no call")
    sim.say(content="then that")
    assert [type(step) for step in sim.run.steps] == [TaskStep, PlanningStep, ActionStep, PlanningStep]
    assert [step.first for step in sim.run.steps if isinstance(step, PlanningStep)] == [True, False]


def test_after_the_last_step_the_model_is_asked_for_an_answer() -> None:
    sim = SimulatedRun(spec(limits=Limits(max_steps=1))).begin()
    events = sim.say(content="no call")
    assert kinds(events) == ["ModelAnswered", "StepFinished", "ModelCalled"]
    assert only(events, ev.ModelCalled).purpose == "final"
    finished = only(sim.say(content="So far: 7."), ev.RunFinished)
    assert (finished.state, finished.output, finished.steps) == ("max_steps_error", "So far: 7.", 1)
    assert finished.error.type == "AgentMaxStepsError"
    assert "1" in finished.error.message
    assert finished.usage == Usage(20, 2, 2, steps=1)
    assert sim.run.steps[-1] == AnswerStep(output="So far: 7.")


def test_the_tasks_own_limit_wins_over_the_specs() -> None:
    sim = SimulatedRun(spec(limits=Limits(max_steps=20))).begin(max_steps=2)
    called = [only(sim.say(content="no call"), ev.ModelCalled) for _ in range(2)]
    assert [(one.purpose, one.step) for one in called] == [("act", 2), ("final", 2)]


def test_a_session_goes_on_from_the_memory_of_its_last_run() -> None:
    before = SimulatedRun().begin("First?")
    before.say(call("add", a=1, b=2))
    before.arrive(result("r1_1_0", 3))
    before.say(ANSWER)
    history: list[Step] = before.run.steps
    sim = SimulatedRun(spec(planning_interval=1), run="r2")
    sim.arrive(task("And then?", run="r2", continues="r1"), history=history)
    of_another = [replace(step, entry=0) if isinstance(step, ActionStep) else step for step in history]
    assert sim.run.steps == [*of_another, TaskStep(task="And then?")]
    assert sim.run.step == 0, "steps are counted from 1 again"
    sim.say(content="new plan")
    assert sim.run.step == 1
    plan = sim.run.steps[-1]
    assert isinstance(plan, PlanningStep)
    assert (plan.plan, plan.first) == ("new plan", False)


def test_usage_sums_the_tokens_of_the_run_and_of_all_below_it() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("kid", task="x"), call("kid", task="y"), usage=Usage(100, 10))
    sim.arrive(report("r1_1_0", "a", usage=Usage(1000, 100, 7)))
    sim.arrive(report("r1_1_1", "b", usage=Usage(5000, 500, 3), state="error"))
    finished = only(sim.say(ANSWER, usage=Usage(200, 20)), ev.RunFinished)
    assert finished.usage == sim.run.usage == Usage(6300, 630, 12, steps=2)
