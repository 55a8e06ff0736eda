"""A model that calls one tool for so many steps, and lets all runs begin a stretch of steps together."""

import asyncio

from bench.instant import answer, call
from cadre.engine.model_request import ModelRequest
from cadre.ports import ModelReply, OnText

STEPS = 50


class Gate:
    """A gate at which a group of runs waits until all of them are there and the measuring side opens."""

    def __init__(self, group: int) -> None:
        self._missing = group
        self._all_here = asyncio.Event()
        self._open = asyncio.Event()

    async def arrive(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._all_here.set()
        await self._open.wait()

    async def full(self) -> None:
        await self._all_here.wait()

    def open(self) -> None:
        self._open.set()


class PacedModel:
    """ports.Model: `lookup` in each of STEPS steps, then the answer; waits at the gates before their steps."""

    def __init__(self) -> None:
        self.gates: dict[int, Gate] = {}

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        step = step_of(request)
        if gate := self.gates.get(step):
            await gate.arrive()
        if step > STEPS:
            return answer("all done")
        return call("lookup", key=f"number {step:02d}")


def step_of(request: ModelRequest) -> int:
    """From 1: a system prompt, a task, and for each step before a call and its result."""
    return (len(request.messages) - 2) // 2 + 1
