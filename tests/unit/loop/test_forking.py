"""Runs that begin with the first steps of another one: what they remember, where they go on, what cannot be."""

from typing import Any

import pytest

from cadre.engine.fold import fold
from cadre.journal import events as ev
from cadre.journal.run import ActionStep, AnswerStep, Phase, PlanningStep, Run, TaskStep
from cadre.loop.fork import ForkError, next_step, prefix_of
from cadre.loop.redecide import Journaled, redecide
from cadre.protocol.messages import Fork
from journals import kept
from unit.loop.build import ANSWER, OFFER, SimulatedRun, call, cancel, only, result, sound, spec, task
from unit.loop.memory_world import PROMPTS, MemoryWorld, ScriptedModel
from unit.loop.workers import says, worker


def source(**fields: Any) -> SimulatedRun:
    """Three steps of sums, the second with a wrong call next to it; then the answer."""
    sim = SimulatedRun(spec(**fields)).begin("Add up.", inputs={"one": 1})
    interval = fields.get("planning_interval")
    for step in (1, 2, 3):
        if interval and (step - 1) % interval == 0:
            sim.say(content=f"plan for {step}")
        wrong = [call("add", a="x")] if step == 2 else []
        sim.say(call("add", a=step, b=1), *wrong, content=f"step {step}")
        sim.arrive(result(sim.id(0), step + 1))
    return sim


def fork_of(run: Run, at: int, **fields: Any) -> list[Any]:
    return prefix_of(run, Fork(run=run.id, at=at, **fields)).steps


def numbers(steps: list[Any]) -> list[int | str]:
    return [step.number if isinstance(step, ActionStep) else "plan" for step in steps]


@pytest.mark.parametrize(("at", "kept_steps"), [(1, []), (2, [1]), (3, [1, 2]), (4, [1, 2, 3])])
def test_the_steps_before_are_kept(at: int, kept_steps: list[int]) -> None:
    assert numbers(fork_of(source().run, at)) == kept_steps


def test_plans_go_with_the_steps_that_they_were_made_for() -> None:
    run = source(planning_interval=2).run
    assert numbers(fork_of(run, 2)) == ["plan", 1]
    assert numbers(fork_of(run, 3)) == ["plan", 1, 2]
    assert numbers(fork_of(run, 4)) == ["plan", 1, 2, "plan", 3]


def test_an_observation_is_replaced_in_the_copy_alone() -> None:
    run = source().run
    steps = fork_of(run, 4, observations={"1_0": "seven", "r1_2_1": "fine after all"})
    assert [one.observation for step in steps for one in step.calls] == ["seven", "3", "fine after all", "4"]
    assert [one.error for step in steps for one in step.calls] == [None] * 4
    first = next(step for step in run.steps if isinstance(step, ActionStep))
    assert first.calls[0].observation == "2"


@pytest.mark.parametrize("name", ["3_0", "1_1", "r9_1_0", "", "1", "x_y"])
def test_an_observation_of_no_call_is_refused(name: str) -> None:
    with pytest.raises(ForkError, match=r": 1_0, 2_0, 2_1$"):
        fork_of(source().run, 3, observations={name: "x"})


@pytest.mark.parametrize("at", [0, -1, 5, 100])
def test_a_step_that_was_not_reached(at: int) -> None:
    with pytest.raises(ForkError, match="1 to 4") as caught:
        fork_of(source().run, at)
    assert caught.value.too_early


def test_a_step_in_work_can_be_forked_but_none_behind_it() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=2))
    assert fork_of(sim.run, 1) == []
    with pytest.raises(ForkError, match="1 to 1"):
        fork_of(sim.run, 2)


def test_the_step_of_the_answer_is_the_last_one_to_fork() -> None:
    sim = source()
    sim.say(ANSWER)
    assert numbers(fork_of(sim.run, 4)) == [1, 2, 3]
    with pytest.raises(ForkError, match="step 1 to 4") as caught:
        fork_of(sim.run, 5)
    assert not caught.value.too_early


def test_a_run_that_ended_early_can_be_forked_behind_its_last_step() -> None:
    sim = source()
    sim.arrive(cancel())
    assert numbers(fork_of(sim.run, 4)) == [1, 2, 3]


def test_a_run_without_an_answer_is_gone_on_with_behind_its_last_step() -> None:
    sim = source()
    with pytest.raises(ForkError, match="has not ended") as caught:
        next_step(sim.run)
    assert caught.value.too_early
    sim.arrive(cancel())
    assert next_step(sim.run) == 4
    answered = source()
    answered.say(ANSWER)
    with pytest.raises(ForkError) as over:
        next_step(answered.run)
    assert not over.value.too_early


def test_a_run_that_has_not_begun() -> None:
    with pytest.raises(ForkError, match="r1") as caught:
        fork_of(Run(id="r1", tree="r1"), 1)
    assert caught.value.too_early


# --- the fork as a run


def forked(at: int, **fields: Any) -> SimulatedRun:
    before = source().run
    about = Fork(run="r1", at=at)
    prefix = prefix_of(before, about)
    sim = SimulatedRun(run="r2")
    sim.arrive(
        task("Add up otherwise.", run="r2", forks=about, **fields),
        history=prefix.history,
        prefix=prefix.steps,
    )
    return sim


def test_a_fork_goes_on_with_the_step_that_it_forks_at() -> None:
    sim = forked(3)
    run = sim.run
    assert [type(step) for step in run.steps] == [TaskStep, ActionStep, ActionStep]
    assert run.steps[0] == TaskStep(task="Add up otherwise.")
    assert (run.step, run.phase) == (3, Phase.THINKING)
    sim.say(call("add", a=5, b=5))
    assert sim.id() == "r2_3_0"
    sim.arrive(result("r2_3_0", 10))
    finished = only(sim.say(ANSWER), ev.RunFinished)
    assert finished.steps == 4
    assert (finished.usage.steps, finished.usage.model_calls) == (2, 2), "what the prefix used was not used again"


def test_a_fork_is_bound_by_the_limits_of_steps() -> None:
    sim = forked(3, max_steps=3)
    called = only(sim.say(content="no call"), ev.ModelCalled)
    assert (called.purpose, called.step) == ("final", 3)


def test_a_fork_behind_its_limit_is_asked_for_its_answer() -> None:
    sim = forked(3, max_steps=2)
    assert sim.run.model is not None
    assert (sim.run.model.purpose, sim.run.model.step) == ("final", 2)
    assert only(sim.say(content="that is all"), ev.RunFinished).state == "max_steps_error"


def test_plans_go_on_in_their_interval() -> None:
    before = source(planning_interval=2).run
    sim = SimulatedRun(spec(planning_interval=2), run="r2")
    about = Fork(run="r1", at=3)
    sim.arrive(task(run="r2", forks=about), prefix=prefix_of(before, about).steps)
    sim.say(content="another plan for 3")
    plan = sim.run.steps[-1]
    assert isinstance(plan, PlanningStep)
    assert (plan.plan, plan.first) == ("another plan for 3", False)
    assert sim.run.model is not None
    assert (sim.run.model.purpose, sim.run.model.step) == ("act", 3)


def test_a_fork_of_a_fork() -> None:
    sim = forked(3)
    sim.say(call("add", a=5, b=5))
    sim.arrive(result("r2_3_0", 10))
    steps = fork_of(sim.run, 4, observations={"1_0": "one", "3_0": "three"})
    assert numbers(steps) == [1, 2, 3]
    assert (steps[0].calls[0].observation, steps[2].calls[0].observation) == ("one", "three")
    assert numbers(fork_of(sim.run, 2)) == [1]


def test_a_turn_of_a_session_is_forked_with_what_it_went_on_from() -> None:
    first = source()
    first.say(ANSWER)
    second = SimulatedRun(run="r2")
    second.arrive(task("And then?", run="r2", continues="r1"), history=list(first.run.steps))
    second.say(call("add", a=9, b=9))
    second.arrive(result("r2_1_0", 18))
    prefix = prefix_of(second.run, Fork(run="r2", at=2))
    assert isinstance(prefix.history[-1], AnswerStep)
    assert numbers(prefix.steps) == [1]


def test_a_fork_is_decided_anew_like_any_run() -> None:
    sim = forked(3)
    sim.say(ANSWER)
    sound(sim)


@pytest.mark.parametrize("name", [one for one in kept.names("1.0") if not one.startswith("simulated")])
def test_kept_runs_can_be_forked(name: str) -> None:
    for journal in kept.journals("1.0", name):
        first = journal[0].entry
        run = fold((one.entry for one in journal), first.run, first.tree)
        assert fork_of(run, 1) == []
        finished = [step.number for step in run.steps if isinstance(step, ActionStep)]
        if finished and name != "session":
            assert numbers([s for s in fork_of(run, finished[-1]) if isinstance(s, ActionStep)]) == finished[:-1]


# --- by the runner


async def test_the_runner_reads_the_run_that_is_forked() -> None:
    world = MemoryWorld()
    model = ScriptedModel(says(call("add", a=1, b=2)), says(call("add", a=3, b=4)), says(ANSWER))
    worker(world, model)
    await world.drive(task("First."))
    about = Fork(run="r1", at=2, observations={"1_0": "twelve"})
    await world.drive(task("Otherwise.", run="r2", forks=about))
    contents = [message["content"] for message in model.requests[-1].messages[1:]]
    assert contents == [PROMPTS.new_task("Otherwise."), None, "twelve"]
    assert (world.run("r2").phase, world.run("r2").step) == (Phase.DONE, 2)


async def test_a_childs_task_reads_as_its_manager_gave_it() -> None:
    world = MemoryWorld()
    model = ScriptedModel(says(ANSWER))
    worker(world, model)
    world.worker(spec(name="chief"), ScriptedModel(says(ANSWER)), OFFER)
    await world.drive(task("Help.", run="r1_1_0", parent="r1"))
    await world.drive(task("Help.", run="r3", forks=Fork(run="r1_1_0", at=1, delegated=True)))
    first, second = (request.messages[1]["content"] for request in model.requests)
    assert first == second != PROMPTS.new_task("Help.")


async def test_a_run_that_is_gone_ends_its_fork_with_a_clear_word() -> None:
    world = MemoryWorld()
    worker(world, ScriptedModel(says(ANSWER)))
    await world.drive(task(run="r2", forks=Fork(run="r1", at=2)))
    ended = world.result("r2")
    assert (ended.state, ended.error.type) == ("error", "NotFound")
    assert "r1" in ended.error.message
    journal = [Journaled(n, entry) for n, entry in enumerate(world.entries("r2"), start=1)]
    assert redecide([journal]).divergences == []
