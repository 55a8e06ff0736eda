"""A model that says what its run's plan says, unless it is busy, slow, limited or deadly."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from cadre.errors import ModelRefused, ModelUnavailable
from cadre.loop.view import ModelRequest
from cadre.messages import Usage
from cadre.ports import ModelReply, OnText
from simulation.faults import Faults
from simulation.plans import Plan, _call, plan_number

A_PLAN = "First this, then that."


class Defect(Exception):
    """What a handler raises by mistake: the queue hands the record back, and lives."""


class PlannedModel:
    """ports.Model without memory: it finds its place in the plan by what it reads."""

    def __init__(
        self,
        plans: list[Plan],
        chance: random.Random,
        faults: Faults,
        die: Callable[[str], None],
        blame: Callable[[str], None],
    ) -> None:
        self._plans, self._chance, self._faults = plans, chance, faults
        self._die, self._blame = die, blame

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        await on_text("…")
        slow = self._faults.happens("model-slow")
        await asyncio.sleep(self._chance.uniform(2.0, 9.0) if slow else self._chance.random())
        self._fail_perhaps()
        usage = Usage(input_tokens=10, output_tokens=2)
        plan, step = self._place(request)
        if plan.deadly == step:
            self._die(plan.task)
            await asyncio.Future[None]()
        if plan.defect == step:
            self._blame(plan.task)
            raise Defect(plan.task)
        if not request.tools:
            return ModelReply(content=A_PLAN if request.stop else "out of steps", usage=usage)
        if plan.nonsense == step:
            return ModelReply(content="Let me think.", usage=usage)
        if plan.nonsense is not None and step > plan.nonsense:
            step -= 1
        if plan.stubborn:
            step = 0
        if step < len(plan.steps):
            return ModelReply(calls=plan.steps[step], usage=usage)
        return ModelReply(calls=[_call("final_answer", answer=plan.answer)], usage=usage)

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
            if plan is None and isinstance(content, str) and message["role"] == "user":
                number = plan_number(content)
                plan = self._plans[number] if number is not None else None
            elif message["role"] == "assistant" and A_PLAN not in (content or ""):
                step += 1
        assert plan is not None, "the model was shown no task"
        return plan, step
