"""What a tracer costs the runs that it follows: steps per second with one at work, against without."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench.deployment import Deployment, deployment
from bench.paced import STEPS, PacedModel
from bench.processes import cpu_seconds
from bench.steps import executor, stretches
from cadre.adapters.nats.streams import jetstream
from cadre.settings import child_environment
from cadre.spec.agent import AgentSpec, Limits
from harness.nats_server import free_port
from harness.stack import Service

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
    topology = here.platform.topology

    async def left() -> int:
        found = 0
        for shard in range(topology.shards):
            subject = f"CONSUMER.INFO.{topology.stream(shard)}.{topology.tracer_consumer()}"
            answer = await jetstream.api(here.platform.nc, subject)
            found += answer["num_pending"] + answer["num_ack_pending"]
        return found

    while True:
        if not await left():
            return
        await asyncio.sleep(_LOOK_EVERY)


@asynccontextmanager
async def _sink() -> AsyncIterator[str]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.sink", str(port)), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def _tracer(here: Deployment, endpoint: str) -> AsyncIterator[int]:
    """The process id of one that has read all there was before."""
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder:
        environment = child_environment(CADRE_NATS_URL=here.nats.url, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
        service = Service("tracer", ["cadre_tracer"], environment, Path(folder))
        try:
            await asyncio.to_thread(service.start)
            await _caught_up(here)
            assert service.process is not None
            yield service.process.pid
        finally:
            if service.is_running:
                await asyncio.to_thread(service.terminate)
