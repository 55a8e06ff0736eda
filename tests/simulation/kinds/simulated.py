"""The interface of a kind of agent for the simulation, with what holds for kinds that act step by step."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from cadre.engine.model_request import ModelRequest
from cadre.journal.events import RequestedCall
from cadre.kinds.stepwise import END_PLAN
from cadre.ports import ModelReply
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec
from simulation.plans import Plan, call_of

A_PLAN = "First this, then that."


class Question(NamedTuple):
    """A request to a model, and the progress of the run in its plan."""

    spec: AgentSpec
    request: ModelRequest
    plan: Plan
    step: int
    chance: random.Random


class SimulatedKind:
    """The kinds `tool_calling` and `code`, and those from other distributions."""

    steps: tuple[int, ...] = (0, 1, 1, 2, 2, 3)
    calls_per_step: tuple[int, ...] = (1, 1, 2, 2, 3)

    def varied(self, calls: list[RequestedCall], chance: random.Random) -> list[RequestedCall]:
        """The calls of one step of a plan, with what a model of this kind may do besides."""
        early = chance.random() < 0.05
        return [*calls, call_of("final_answer", answer="too early")] if early else calls

    parts: bool = False
    """True if its runs have others do parts of their work, which have plans of their own."""

    def wish(self, state: Any, text: str, chance: random.Random) -> dict[str, Any]:
        """An edit that a person may wish of what can be edited of a run."""
        return {"op": "add", "wish": text}

    def hands_on(self, spec: AgentSpec) -> str | None:
        """The member to which each run hands its own plan, no matter what its model says."""
        return None

    def drawn(self, spec: AgentSpec, chance: random.Random, *, poison: bool) -> AgentSpec:
        """The spec with the kind's own section."""
        return spec

    def step(self, request: ModelRequest, step: int) -> int:
        """The step of the plan that a request is about; `step` is how many answers of the model it shows."""
        return step

    def reply(self, asked: Question) -> ModelReply:
        """Return what the model says."""
        request = asked.request
        if END_PLAN in request.stop:
            return said(A_PLAN)
        if request.block is None and not request.tools:
            return said("out of steps")
        step = taken(asked)
        if step is None:
            return said("Let me think.")
        return self.act(asked, step)

    def act(self, asked: Question, step: int) -> ModelReply:
        """Return what the model says at that step of its plan."""
        plan = asked.plan
        calls = plan.steps[step] if step < len(plan.steps) else [call_of("final_answer", answer=plan.answer)]
        return ModelReply(calls=calls, usage=Usage())


def said(text: str) -> ModelReply:
    """A reply in text. Its tokens are counted by the model that says it."""
    return ModelReply(content=text, usage=Usage())


def taken(asked: Question) -> int | None:
    """The step to take, where the plan's nonsense is not of its steps; None where it is time for that."""
    plan, step = asked.plan, asked.step
    if plan.nonsense == step:
        return None
    step -= plan.nonsense is not None and step > plan.nonsense
    return 0 if plan.stubborn else step
