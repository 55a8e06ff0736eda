"""Plans for tests of the pure loop, in the team of `unit.loop.build`."""

import json
from typing import Any

import msgspec

from cadre.engine.chat import Transcript
from cadre.journal import events as ev
from cadre.kinds.plan.fold import state_of
from cadre.kinds.plan.records import PlanState
from cadre.kinds.plan.section import PlanSpec
from cadre.prompting.prompts import prompts_for
from cadre.protocol.messages import Decision, Edit, ErrorInfo, Report, Task
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from unit.loop.build import SimulatedRun, result, sent, spec

BROKEN = ErrorInfo("tool-failed", "no abacus")
ADD: dict[str, Any] = {"action": "add", "args": {"a": 1, "b": 2}}
LOOK: dict[str, Any] = {"action": "look", "args": {"at": "sky"}}


def planner(*steps: Any, fields: Any = None, **section: Any) -> AgentSpec:
    """An agent of kind `plan`; its section is written as in its file."""
    written = msgspec.convert({"steps": list(steps), **section}, PlanSpec)
    return spec(**{"kind": "plan", **sections(written), **(fields or {})})


def begun(*steps: Any, task: str = "Do it.", given: Any = None, fields: Any = None, **section: Any) -> SimulatedRun:
    return SimulatedRun(planner(*steps, fields=fields, **section)).begin(task, **(given or {}))


def plan(*steps: Any) -> str:
    return json.dumps({"steps": steps})


def state(sim: SimulatedRun) -> PlanState:
    return state_of(sim.run)


def states(sim: SimulatedRun) -> dict[int, str]:
    return {item.step: item.state for item in state(sim).items}


def call_of(sim: SimulatedRun, step: int) -> str:
    return next(item.call for item in state(sim).items if item.step == step)


def done(sim: SimulatedRun, step: int, value: Any = 3) -> list[ev.AnyEvent]:
    return sim.arrive(result(call_of(sim, step), value))


def failed(sim: SimulatedRun, step: int) -> list[ev.AnyEvent]:
    answered = result(call_of(sim, step), None)
    return sim.arrive(msgspec.structs.replace(answered, error=BROKEN))


def child_of(sim: SimulatedRun, task: Task) -> SimulatedRun:
    """The course of the run that a task of this one begins."""
    child = SimulatedRun(sim.spec, sim.toolset, task.run)
    child.arrive(task)
    return child


def tasks(sim: SimulatedRun) -> list[Task]:
    return sent(sim, Task)


def reported(child: SimulatedRun) -> Report:
    return next(iter(sent(child, Report)))


def purpose(sim: SimulatedRun) -> str:
    assert sim.run.model is not None
    return sim.run.model.purpose


def text(sim: SimulatedRun) -> str:
    """All that the model is asked now."""
    request = Transcript(prompts_for(sim.spec)).request(sim.run, purpose(sim))
    return "\n".join(str(message["content"]) for message in request.messages)


def decide(sim: SimulatedRun, verdict: str, feedback: str = "") -> list[ev.AnyEvent]:
    call = sim.run.open_calls()[0].id
    fields = {"id": f"{call}:decision", "tree": "r1", "run": "r1", "at": 2.0, "call": call, "sender": "ada"}
    return sim.arrive(
        msgspec.convert({"type": "decision", **fields, "verdict": verdict, "feedback": feedback}, Decision)
    )


def edit(sim: SimulatedRun, *operations: dict[str, Any], base: int | None = None) -> ev.AnyEvent:
    """The first event of the edit."""
    number = len(sim.journal())
    version = state(sim).version if base is None else base
    return sim.arrive(
        Edit(
            id=f"e{number}",
            tree="r1",
            run="r1",
            at=2.0,
            base=version,
            operations=list(operations),
            sender="ann",
        )
    )[0]
