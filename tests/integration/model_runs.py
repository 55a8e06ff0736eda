"""Whole runs through the real client: an endpoint over HTTP, everything else in memory."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cadre.adapters.models.model_chain import ModelChain
from cadre.engine.model_request import ModelRequest
from cadre.journal.run import Run
from cadre.ports import ModelReply, OnText
from cadre.prompting.prompts import prompts_for
from cadre.spec.agent import AgentSpec
from cadre.spec.model import ModelSpec
from harness.memory_ports import MemoryBlobs
from integration.model_calls import NO_ENDPOINT
from unit.loop.build import OFFER, SPEC, task
from unit.loop.memory_world import MemoryWorld


class Observed:
    """ports.Model that keeps what the endpoint is asked."""

    def __init__(self, model: ModelSpec) -> None:
        self._inner = ModelChain(model, NO_ENDPOINT, MemoryBlobs())
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        self.requests.append(request)
        return await self._inner.complete(request, on_text)

    async def close(self) -> None:
        await self._inner.close()


async def played(
    text: str, agent: AgentSpec = SPEC, images: Sequence[str] = (), **fields: Any
) -> tuple[Run, list[ModelRequest]]:
    """The run of a task to its end, and what its model was asked."""
    agent = msgspec.structs.replace(agent, **fields)
    world, observed = MemoryWorld(), Observed(agent.model)
    world.worker(agent, observed, OFFER, prompts_for(agent))
    try:
        await world.drive(task(text, images=[*images]))
    finally:
        await observed.close()
    return world.run("r1"), observed.requests
