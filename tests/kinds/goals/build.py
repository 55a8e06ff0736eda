"""Runs of agents that work on goals, and what their models answer."""

import json
from typing import Any

from cadre.engine.chat import Transcript
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.kinds.goals.records import GoalsSpec
from cadre.prompting.prompts import prompts_for
from cadre.spec.agent import AgentSpec
from cadre.spec.kinds import sections
from unit.loop.build import SimulatedRun, spec


def goals_spec(section: GoalsSpec | None = None, **fields: Any) -> AgentSpec:
    return spec(kind="goals", **sections(section or GoalsSpec(goals=["Know the sum."])), **fields)


def begun(section: GoalsSpec | None = None, task: str = "Add up.", **fields: Any) -> SimulatedRun:
    return SimulatedRun(goals_spec(section, **fields)).begin(task)


def answer(tool: str, text: str = "I see.", **args: Any) -> str:
    """Return what a model writes that calls a tool."""
    thoughts = {
        "text": text,
        "reasoning": "So it is.",
        "plan": "- go on",
        "criticism": "none",
        "speak": "On it.",
    }
    return json.dumps({"thoughts": thoughts, "tool": {"name": tool, "args": args}})


def says(sim: SimulatedRun, tool: str, **args: Any) -> list[ev.AnyEvent]:
    """The model calls a tool."""
    return sim.say(content=answer(tool, **args))


def request_of(sim: SimulatedRun) -> ModelRequest:
    """Return what the model in flight is asked."""
    assert sim.run.model is not None
    return Transcript(prompts_for(sim.spec)).request(sim.run, sim.run.model.purpose)
