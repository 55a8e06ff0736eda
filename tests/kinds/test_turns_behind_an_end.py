"""The next turn of a session reads what was done in the step that the turn before it ended in, no matter what ended
that one and no matter what kind of agent it is."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cadre.engine.chat import Transcript
from cadre.journal.arrivals import Poisoned
from cadre.journal.run import ActionStep, Phase
from cadre.kinds.task_queue.records import TaskQueueSpec
from cadre.loop.fork import next_step
from cadre.prompting.prompts import prompts_for
from cadre.spec.agent import AgentSpec
from cadre.spec.model import ModelSpec
from kinds.code.build import ANSWER_WITH_CODE, asks, yielded
from kinds.goals.build import goals_spec, says
from kinds.plan.build import ADD, LOOK, planner
from kinds.plan.build import plan as written_plan
from kinds.solution.build import proposes
from kinds.task_queue.test_task_queue import queue_spec
from kinds.workflow.built import workflow
from unit.loop.build import SimulatedRun, call, cancel, report, result, sound, spec, task, timer

PAID, LATE = "receipt 7341", "receipt 9920"


def calls_two(sim: SimulatedRun) -> None:
    sim.say(call("add", a=1, b=2), call("look", at="sky"))
    sim.arrive(result(sim.id(0), PAID, tool="add"))


def runs_code(sim: SimulatedRun) -> None:
    sim.say(content=ANSWER_WITH_CODE)
    sim.arrive(yielded(asks("add", a=1, b=2), asks("look", at="sky")))
    sim.arrive(result(sim.id(0), PAID, tool="add"))


def works_on_goals(sim: SimulatedRun) -> None:
    says(sim, "add", a=1, b=2)
    sim.arrive(result(sim.id(), PAID, tool="add"))
    says(sim, "look", at="sky")


def follows_a_plan(sim: SimulatedRun) -> None:
    sim.say(content=written_plan({"step": 1, **ADD}, {"step": 2, **LOOK}))
    first = next(one for one in sim.run.open_calls() if one.name == "add")
    sim.arrive(result(first.id, PAID, tool="add"))


def walks(sim: SimulatedRun) -> None:
    sim.say(content="Go on.")
    sim.arrive(result(sim.id(), PAID, tool="add"))


def empties_a_queue(sim: SimulatedRun) -> None:
    sim.say(content=json.dumps(["Pay", "Look"]))
    says(sim, "add", a=1, b=2)
    sim.arrive(result(sim.run.open_calls()[0].id, PAID, tool="add"))
    says(sim, "look", at="sky")


def proposes_two(sim: SimulatedRun) -> None:
    add, look = ({"name": one["action"], "arguments": one["args"]} for one in (ADD, LOOK))
    proposes(sim, add, look)
    sim.arrive(result(sim.id(0), PAID, tool="add"))


ASK = {"ask": {"prompt": "What now?"}, "next": "pay"}
PAY = {"tool": {"name": "add", "arguments": {"a": 1, "b": 2}}, "next": "watch"}
WATCH = {"tool": {"name": "look", "arguments": {"at": "sky"}}}
QUEUE = TaskQueueSpec(goals=["Empty the inbox."], create=False, prioritize=False)

KINDS: dict[str, tuple[Callable[[], AgentSpec], Callable[[SimulatedRun], None]]] = {
    "tool_calling": (spec, calls_two),
    "tool_calling in text": (lambda: spec(model=ModelSpec(calls="text")), calls_two),
    "code": (lambda: spec(kind="code"), runs_code),
    "goals": (goals_spec, works_on_goals),
    "plan": (lambda: planner(), follows_a_plan),
    "workflow": (lambda: workflow("first", first=ASK, pay=PAY, watch=WATCH), walks),
    "task_queue": (lambda: queue_spec(QUEUE), empties_a_queue),
    "solution": (lambda: spec(kind="solution"), proposes_two),
}
ENDS: dict[str, Callable[[SimulatedRun], Any]] = {
    "cancelled": lambda sim: sim.arrive(cancel()),
    "ended at once": lambda sim: sim.arrive(cancel(now=True)),
    "out of time": lambda sim: _late(sim),
    "poisoned": lambda sim: sim.arrive(Poisoned(id="p", deliveries=3)),
}


def _late(sim: SimulatedRun) -> None:
    sim.at = 1_000.0
    sim.arrive(timer("deadline"))


def next_turn(before: SimulatedRun) -> str:
    """All that the model is asked first in the turn that goes on from this one."""
    sim = SimulatedRun(before.spec, before.toolset, "r2")
    go_on = task("Go on.", run="r2", agent=sim.spec.name, continues=before.run.id)
    sim.arrive(go_on, history=before.run.steps)
    model = sim.run.model
    assert model is not None
    request = Transcript(prompts_for(sim.spec)).request(sim.run, model.purpose)
    return "\n".join(f"{one.get('content')} {one.get('tool_calls', '')}" for one in request.messages)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_turn_reads_what_was_done_and_what_nobody_knows(kind: str, end: str) -> None:
    build, act = KINDS[kind]
    sim = SimulatedRun(build()).begin("Do it.", deadline=1_000.0)
    act(sim)
    (left,) = [one for one in sim.run.open_calls() if one.name == "look"]
    ENDS[end](sim)
    assert sim.run.phase is Phase.DONE
    asked = next_turn(sim)
    assert PAID in asked
    (closed,) = [one for step in sim.run.steps for one in getattr(step, "calls", []) if one.id == left.id]
    assert closed.error is not None
    assert closed.error.type == "Interrupted"
    assert closed.error.message in asked
    sound(sim)


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_comes_behind_the_end_is_read_too(kind: str) -> None:
    build, act = KINDS[kind]
    sim = SimulatedRun(build()).begin("Do it.")
    act(sim)
    (left,) = [one for one in sim.run.open_calls() if one.name == "look"]
    sim.arrive(cancel())
    used = sim.run.usage
    sim.arrive(result(left.id, LATE, tool="look"))
    assert sim.run.usage == used
    asked = next_turn(sim)
    assert PAID in asked
    assert LATE in asked
    assert "Outcome unknown" not in asked
    sound(sim)


def test_a_call_that_was_never_made_is_not_said_to_be_unknown() -> None:
    sim = SimulatedRun(spec(approvals={"look": "always"})).begin()
    sim.say(call("add", a=1, b=2), call("look", at="sky"))
    sim.arrive(result(sim.id(0), PAID, tool="add"))
    sim.arrive(cancel())
    step = sim.run.steps[-1]
    assert isinstance(step, ActionStep)
    held = step.calls[1]
    assert held.error is not None
    assert held.error.type == "Cancelled"
    assert held.error.message in next_turn(sim)


def test_what_a_stopped_member_had_done_reaches_the_turn_behind_its_managers_end() -> None:
    member = SimulatedRun(spec(name="kid", team=[]), run="r1_1_0").begin(parent="r1")
    calls_two(member)
    member.arrive(cancel(run="r1_1_0"))
    boss = SimulatedRun(spec()).begin()
    boss.say(call("kid", task="Pay."))
    boss.arrive(cancel())
    result_ = member.run.result
    assert result_ is not None
    assert PAID in (result_.found or "")
    boss.arrive(report(boss.id(), result_.found or "", "cancelled", agent="kid", error=result_.error))
    assert PAID in next_turn(boss)
    sound(boss)


def test_a_run_that_goes_on_takes_over_the_step_that_it_ended_in() -> None:
    sim = SimulatedRun(spec()).begin()
    calls_two(sim)
    sim.arrive(cancel())
    assert next_step(sim.run) == 2
