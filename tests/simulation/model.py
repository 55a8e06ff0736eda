"""A model that says what its run's plan says, unless it is busy, slow, limited or deadly."""

import asyncio
import random
import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from cadre.engine.context.context_budget import room
from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelRefused, ModelUnavailable
from cadre.ports import ModelReply, OnText
from cadre.protocol.usage import Usage
from cadre.spec.agent import AgentSpec
from simulation.contexts import size_of, steps_told, summary_of
from simulation.faults import Faults
from simulation.kinds.registry import simulated
from simulation.kinds.simulated import A_PLAN, Question
from simulation.plans import Plan, plan_number

_NOTE = re.compile(r"<note.*?</note>", re.DOTALL)


class Defect(Exception):
    """An error that a handler raises by mistake: the queue hands the record back, and lives."""


class Told(NamedTuple):
    """A listener to which a model reports its fate."""

    die: Callable[[str], None]
    """Ends its process on behalf of a task."""
    blame: Callable[[str], None]
    """Of a task whose handling fails."""
    outgrown: Callable[[str], None]
    """Of a request that is larger than its context."""


class PlannedModel:
    """ports.Model without memory: it finds its place in the plan by what it reads."""

    def __init__(
        self,
        spec: AgentSpec,
        plans: list[Plan],
        chance: random.Random,
        faults: Faults,
        tell: Told,
    ) -> None:
        self._spec, self._plans, self._chance, self._faults = spec, plans, chance, faults
        self._die, self._blame, self._outgrown = tell
        self._room = room(spec) if spec.model.max_tokens else None

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        await on_text("…")
        slow = self._faults.happens("model-slow")
        await asyncio.sleep(self._chance.uniform(2.0, 9.0) if slow else self._chance.random())
        self._fail_perhaps()
        usage = Usage(input_tokens=10, output_tokens=2)
        if self._room is not None:
            # Its own tokenizer, which makes a little more of a text than the estimate does.
            size = size_of(request) * 11 // 10
            usage = Usage(input_tokens=size, output_tokens=2)
            # What was counted of a short request shows little of a long one: there the estimate may be a little low.
            if size > self._room * 107 // 100:
                self._outgrown(f"{self._spec.name} asks with {size} tokens and has room for {self._room}")
        kind = simulated(self._spec)
        plan, step = self._place(request)
        step = kind.step(request, step)
        if plan.deadly == step:
            self._die(plan.task)
            await asyncio.Future[None]()
        if plan.defect == step:
            self._blame(plan.task)
            raise Defect(plan.task)
        if request.max_tokens is not None:
            return ModelReply(content=summary_of(request.messages[0]["content"], A_PLAN), usage=usage)
        reply: ModelReply = kind.reply(Question(self._spec, request, plan, step, self._chance))
        return msgspec.structs.replace(reply, usage=usage)

    def _fail_perhaps(self) -> None:
        if self._faults.happens("model-busy"):
            raise ModelUnavailable("busy", status=503)
        if self._faults.happens("model-limited"):
            seconds = self._chance.choice((0.2, 0.9, 3.0, 40.0))
            raise ModelUnavailable("too fast", status=429, retry_after=seconds, rate_limited=True)
        if self._faults.happens("model-refuses"):
            raise ModelRefused("no such model", status=404)

    def _place(self, request: ModelRequest) -> tuple[Plan, int]:
        """The run's plan, and how many steps of it have been taken."""
        plan, step = None, 0
        for message in request.messages:
            content = message["content"]
            if isinstance(content, str) and message["role"] == "user":
                # Notes are of other runs, with plans of their own.
                content = _NOTE.sub("", content)
                if "<summary>" in content:
                    step += steps_told(content)
            if plan is None and isinstance(content, str) and message["role"] == "user":
                number = plan_number(content)
                plan = self._plans[number] if number is not None else None
            elif message["role"] == "assistant" and A_PLAN not in (content or ""):
                step += 1
        assert plan is not None, "the model was shown no task"
        return plan, step
