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
from cadre.spec.sections import sections
from unit.loop.build import Course, result, sent, spec

BROKEN = ErrorInfo("tool-failed", "no abacus")
ADD: dict[str, Any] = {"action": "add", "args": {"a": 1, "b": 2}}
LOOK: dict[str, Any] = {"action": "look", "args": {"at": "sky"}}


def planner(*steps: Any, fields: Any = None, **section: Any) -> AgentSpec:
    """An agent of kind `plan`; its section is written as in its file."""
    written = msgspec.convert({"steps": list(steps), **section}, PlanSpec)
    return spec(**{"kind": "plan", **sections(written), **(fields or {})})


def begun(*steps: Any, task: str = "Do it.", given: Any = None, fields: Any = None, **section: Any) -> Course:
    return Course(planner(*steps, fields=fields, **section)).begin(task, **(given or {}))


def plan(*steps: Any) -> str:
    return json.dumps({"steps": steps})


def state(course: Course) -> PlanState:
    return state_of(course.run)


def states(course: Course) -> dict[int, str]:
    return {item.step: item.state for item in state(course).items}


def call_of(course: Course, step: int) -> str:
    return next(item.call for item in state(course).items if item.step == step)


def done(course: Course, step: int, value: Any = 3) -> list[ev.AnyEvent]:
    return course.arrive(result(call_of(course, step), value))


def failed(course: Course, step: int) -> list[ev.AnyEvent]:
    answered = result(call_of(course, step), None)
    return course.arrive(msgspec.structs.replace(answered, error=BROKEN))


def child_of(course: Course, task: Task) -> Course:
    """The course of the run that a task of this one begins."""
    child = Course(course.spec, course.offer, task.run)
    child.arrive(task)
    return child


def tasks(course: Course) -> list[Task]:
    return sent(course, Task)


def reported(child: Course) -> Report:
    return next(iter(sent(child, Report)))


def purpose(course: Course) -> str:
    assert course.run.model is not None
    return course.run.model.purpose


def text(course: Course) -> str:
    """All that the model is asked now."""
    request = Transcript(prompts_for(course.spec)).request(course.run, purpose(course))
    return "\n".join(str(message["content"]) for message in request.messages)


def decide(course: Course, verdict: str, feedback: str = "") -> list[ev.AnyEvent]:
    call = course.run.open_calls()[0].id
    fields = {"id": f"{call}:decision", "tree": "r1", "run": "r1", "at": 2.0, "call": call, "sender": "ada"}
    return course.arrive(
        msgspec.convert({"type": "decision", **fields, "verdict": verdict, "feedback": feedback}, Decision)
    )


def edit(course: Course, *operations: dict[str, Any], base: int | None = None) -> ev.AnyEvent:
    """The first event of the edit."""
    number = len(course.journal())
    version = state(course).version if base is None else base
    return course.arrive(
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
