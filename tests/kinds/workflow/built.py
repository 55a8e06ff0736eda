"""Workflows for tests of the pure loop, in the team of `unit.loop.build`."""

from typing import Any

import msgspec

from cadre.journal import events as ev
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.protocol.messages import Decision
from cadre.spec.agent import AgentSpec
from cadre.spec.sections import sections
from unit.loop.build import Course, spec


def workflow(start: str, fields: Any = None, /, **steps: Any) -> AgentSpec:
    """An agent whose workflow has these steps, written as in its file."""
    section = msgspec.convert({"start": start, "steps": steps}, WorkflowSpec)
    return spec(kind="workflow", **sections(section), **(fields or {}))


def run_of(agent: AgentSpec, text: str = "Do it.", **fields: Any) -> Course:
    return Course(agent).begin(text, **fields)


def decide(course: Course, verdict: str, feedback: str = "") -> list[ev.AnyEvent]:
    call = course.run.open_calls()[0].id
    fields = {"id": f"{call}:decision", "tree": "r1", "run": "r1", "at": 2.0, "call": call, "sender": "ada"}
    return course.arrive(
        msgspec.convert({"type": "decision", **fields, "verdict": verdict, "feedback": feedback}, Decision)
    )


def entered(course: Course) -> list[str]:
    """The steps that were begun, in order."""
    events = [event for entry in course.journal() for event in entry.events]
    return [event.name for event in events if isinstance(event, ev.StepStarted)]
