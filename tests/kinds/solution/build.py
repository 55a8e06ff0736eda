"""Runs of an agent that proposes solutions, and what its model answers, for tests of the kind `solution`."""

from typing import Any

import msgspec

from cadre.engine.chat import Transcript
from cadre.engine.model_request import ModelRequest
from cadre.journal import events as ev
from cadre.kinds.solution.records import SolutionSpec
from cadre.prompting.prompts import Prompts
from cadre.protocol.messages import Decision, Verdict
from cadre.spec.kinds import sections
from unit.loop.build import SimulatedRun, spec

LOOK = {"name": "look", "arguments": {"at": "sky"}}
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}
KID = {"name": "kid", "arguments": {"task": "Help."}}


def solver(section: SolutionSpec | None = None, **fields: Any) -> SimulatedRun:
    return SimulatedRun(spec(kind="solution", **sections(section or SolutionSpec()), **fields))


def proposes(sim: SimulatedRun, *calls: dict[str, Any], output: Any = None) -> list[ev.AnyEvent]:
    """The model answers with a solution."""
    solution = {"solution": {"calls": list(calls), "output": output}}
    return sim.say(content=msgspec.json.encode(solution).decode())


def decides(sim: SimulatedRun, verdict: Verdict, call: str = "r1_1_0", **fields: Any) -> list[ev.AnyEvent]:
    """A person decides on what waits."""
    place = {"id": f"{call}:{verdict}:{sim.at}", "tree": "r1", "run": "r1", "at": 2.0, "call": call}
    return sim.arrive(msgspec.convert({"type": "decision", **place, "verdict": verdict, **fields}, Decision))


def asked(sim: SimulatedRun, prompts: str = "solution") -> ModelRequest:
    """Return what the model is asked now."""
    assert sim.run.model is not None
    return Transcript(Prompts.load(prompts)).request(sim.run, sim.run.model.purpose)


def last_read(sim: SimulatedRun) -> str:
    """The last message of what the model is asked now."""
    content = asked(sim).messages[-1]["content"]
    assert isinstance(content, str)
    return content
