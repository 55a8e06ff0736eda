"""The cost of a step for an agent whose model is an endpoint: early and late in a conversation that grows by 4 kB a
step.

The agent is served by this process through the production's client, and CPU is this process's; the scripted model and
the executor are processes of their own. The same answer comes in 20 pieces or in 200.
"""

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from bench.deployment import Deployment, deployment
from bench.paced import step_of
from bench.steps import executor, running_service
from cadre.adapters.models.openai_model import OpenAIModel
from cadre.engine.model_request import ModelRequest
from cadre.ports import Confirm, ModelReply, OnText
from cadre.settings import ModelSettings
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import ModelSpec

PIECES = (20, 200)
EARLY, LATE = 20, 200
STRETCH = 10
"""Steps around EARLY and LATE that are measured together."""
STEPS = LATE + STRETCH
TEXT = "Read on " * 100


class MarkedModel:
    """ports.Model that notes the CPU this process has used when a step's request is made."""

    def __init__(self, inner: OpenAIModel) -> None:
        self._inner = inner
        self._used: dict[int, float] = {}

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        self._used[step_of(request)] = time.process_time()
        return await self._inner.complete(request, on_text)

    async def complete_in_turn(self, request: ModelRequest, on_text: OnText, confirm: Confirm) -> ModelReply:
        self._used[step_of(request)] = time.process_time()
        return await self._inner.complete(request, on_text, confirm)

    def per_step(self, step: int) -> float:
        """CPU milliseconds of a step, by those around it."""
        first = step - STRETCH // 2
        return (self._used[first + STRETCH] - self._used[first]) * 1e3 / STRETCH


def script() -> dict[str, Any]:
    """A page is read in each of STEPS steps, then comes the answer; the model's name says in how many pieces."""
    rules = []
    for pieces in PIECES:
        model = f"in-{pieces}$"
        end = {"tool_calls": [{"name": "final_answer", "arguments": {"answer": "all read"}}]}
        rules.append({"name": f"{model} ends", "match": {"model": model, "turn": STEPS}, "reply": end})
        call = {"name": "read_page", "arguments": {"number": "{{ turn }}"}}
        step = {"content": TEXT, "chunk": len(TEXT) // pieces, "tool_calls": [call]}
        rules.append({"name": f"{model} reads", "match": {"model": model}, "reply": step})
    return {"rules": rules}


async def measure(rounds: int) -> dict[str, Any]:
    """`rounds` of one run with either number of pieces, in turns."""
    with TemporaryDirectory(prefix="cadre-bench-") as folder:
        path = Path(folder) / "script.yaml"
        path.write_bytes(msgspec.yaml.encode(script()))
        async with (
            deployment() as here,
            executor(here),
            running_service(here, "cadre_scripted_model", "--script", str(path)) as endpoint,
        ):
            models = {pieces: await _served(here, f"{endpoint.url}/v1", pieces) for pieces in PIECES}
            await here.offered("read_page")
            costs: dict[int, list[tuple[float, float]]] = {pieces: [] for pieces in PIECES}
            for _ in range(rounds):
                for pieces, model in models.items():
                    await here.run(here.task(f"reader-{pieces}", "Read it all."))
                    costs[pieces].append((model.per_step(EARLY), model.per_step(LATE)))
    values: dict[str, Any] = {}
    for pieces, found in costs.items():
        values[f"endpoint_step_cpu_ms_{pieces}"] = median(early for early, _ in found)
        values[f"endpoint_step_growth_{pieces}"] = median(late / early for early, late in found)
    return values


async def _served(here: Deployment, url: str, pieces: int) -> MarkedModel:
    name = f"in-{pieces}"
    spec = AgentSpec(
        name=f"reader-{pieces}",
        description="Reads.",
        tools=["read_page"],
        model=ModelSpec(name=name, url=url, context=2_000_000),
        limits=Limits(max_steps=STEPS + 5),
    )
    model = MarkedModel(OpenAIModel(spec.model, ModelSettings(), here.platform.blobs))
    await here.serve(spec, model)
    return model
