"""Workflows for tests of the pure loop, in the team of `unit.loop.build`."""

from typing import Any

import msgspec

from cadre.journal import events as ev
from cadre.kinds.workflow.section import WorkflowSpec
from cadre.protocol.messages import Decision
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from unit.loop.build import SimulatedRun, spec


def workflow(start: str, fields: Any = None, /, **steps: Any) -> AgentSpec:
    """An agent whose workflow has these steps, written as in its file."""
    section = msgspec.convert({"start": start, "steps": steps}, WorkflowSpec)
    return spec(kind="workflow", **sections(section), **(fields or {}))


def run_of(agent: AgentSpec, text: str = "Do it.", **fields: Any) -> SimulatedRun:
    return SimulatedRun(agent).begin(text, **fields)


def decide(sim: SimulatedRun, verdict: str, feedback: str = "") -> list[ev.AnyEvent]:
    call = sim.run.open_calls()[0].id
    fields = {"id": f"{call}:decision", "tree": "r1", "run": "r1", "at": 2.0, "call": call, "sender": "ada"}
    return sim.arrive(
        msgspec.convert({"type": "decision", **fields, "verdict": verdict, "feedback": feedback}, Decision)
    )


def entered(sim: SimulatedRun) -> list[str]:
    """The steps that were begun, in order."""
    events = [event for entry in sim.journal() for event in entry.events]
    return [event.name for event in events if isinstance(event, ev.StepStarted)]
