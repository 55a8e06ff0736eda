"""The cost of a tracer for the runs that it follows: steps per second with one at work, against without."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

from bench.deployment import Deployment, deployment
from bench.paced import STEPS, PacedModel
from bench.processes import cpu_seconds, running_module
from bench.steps import executor, running_service, stretches
from cadre.spec.agent import AgentSpec, Limits
from harness.nats_server import free_port

SPANS_PER_STEP = 4
"""The step, its model call, its tool call, what the executor did."""

_LOOK_EVERY = 0.05


async def measure(rounds: int, group: int) -> dict[str, Any]:
    """`rounds` of `group` runs at once, in turns with a tracer and without, so that both see the same machine: one
    run alone would measure the disk."""
    ratios, cpu = [], 0.0
    async with deployment() as here, executor(here), _sink() as endpoint:
        model = PacedModel()
        limits = Limits(max_steps=STEPS + 5)
        spec = AgentSpec(name="stepper", description="Looks up.", tools=["lookup"], limits=limits)
        await here.serve(spec, model)
        await here.offered("lookup")
        await stretches(here, model, group)
        for _ in range(rounds):
            before = (await stretches(here, model, group)).rate
            async with _tracer(here, endpoint) as pid:
                used = cpu_seconds(pid)
                rate = (await stretches(here, model, group)).rate
                await _caught_up(here)
                cpu += cpu_seconds(pid) - used
            after = (await stretches(here, model, group)).rate
            ratios.append(2 * rate / (before + after))
    return {
        "tracing_step_rate_ratio": median(ratios),
        "tracing_cpu_us_per_span": cpu * 1e6 / (rounds * group * STEPS * SPANS_PER_STEP),
    }


async def _caught_up(here: Deployment) -> None:
    """Until the tracer has acked all that the journals hold."""
    consumer = here.platform.topology.tracer_consumer()
    while await here.left(consumer):  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(_LOOK_EVERY)


@asynccontextmanager
async def _sink() -> AsyncIterator[str]:
    port = free_port()
    async with running_module("bench.sink", str(port)):
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def _tracer(here: Deployment, endpoint: str) -> AsyncIterator[int]:
    """The process id of one that has read all there was before."""
    async with running_service(here, "cadre_tracer", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as service:
        await _caught_up(here)
        assert service.process is not None
        yield service.process.pid
