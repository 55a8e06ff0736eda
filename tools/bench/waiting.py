"""Runs that wait for a person: what they cost the process of their agent, which is to be nothing.

The agent is its own process; each run asks for a tool call that its policy holds back. All have been begun and
put aside when their inbox holds nothing that was not acknowledged.
"""

import asyncio
import time
from typing import Any

from bench.deployment import Deployment, deployment
from bench.held import REFUND
from bench.processes import Member, cpu_seconds, rss_mb
from cadre.engine.fold import fold
from cadre.journal.run import Run
from cadre.protocol.cards import Presence

FULL = (2_000, 10_000)
QUICK = (500, 2_000)
"""Runs that wait when memory is looked at."""

_AGENT = "clerk"
_IN_FLIGHT = 128
_BEGUN_WITHIN = 600.0
_GLANCE = 0.1


async def measure(sizes: tuple[int, ...], idle_seconds: float) -> dict[str, Any]:
    async with deployment() as here:
        offer = Presence(instance="bench", host="bench", pid=0, started_at=0.0, tool=REFUND)
        await here.platform.registry.announce([offer])
        agent = await Member.start(here.nats.url, here.platform.topology.shards, "--held")
        try:
            await here.offered(_AGENT)
            values: dict[str, Any] = {"waiting_runs": sizes[-1], "waiting_rss_mb_0": rss_mb(agent.pid)}
            consumers, waiting, started = (
                sum(state["consumer_count"] for state in await here.streams()),
                0,
                time.perf_counter(),
            )
            for size in sizes:
                last = await begin(here, size - waiting)
                waiting = size
                await put_aside(here)
                if await _held(here, last) != 1:
                    raise RuntimeError(f"run {last} does not wait for a person")
                values[f"waiting_rss_mb_{size}"] = rss_mb(agent.pid)
            values["waiting_begun_per_second"] = waiting / (time.perf_counter() - started)
            values["waiting_rss_growth_mb"] = (
                values[f"waiting_rss_mb_{sizes[-1]}"] - values[f"waiting_rss_mb_{sizes[0]}"]
            )
            values["waiting_consumers_added"] = (
                sum(state["consumer_count"] for state in await here.streams()) - consumers
            )
            before = cpu_seconds(agent.pid)
            await asyncio.sleep(idle_seconds)
            values["waiting_idle_cpu_percent"] = (cpu_seconds(agent.pid) - before) / idle_seconds * 100
            return values
        finally:
            await agent.stop()


async def begin(here: Deployment, count: int) -> str:
    """Sends so many tasks; the id of the last run."""
    tasks = [here.task(_AGENT, f"Refund order {number}.") for number in range(count)]
    left = iter(tasks)

    async def worker() -> None:
        for task in left:
            await here.platform.bus.send(task, "bench")

    async with asyncio.TaskGroup() as group:
        for _ in range(_IN_FLIGHT):
            group.create_task(worker())
    return tasks[-1].run


async def put_aside(here: Deployment, *before: str) -> None:
    """Until the agent has accounted for every task, and the consumers `before` it for what leads there. Raises
    RuntimeError when that takes too long."""
    consumers = (*before, here.platform.topology.agent_consumer(_AGENT))
    deadline = time.monotonic() + _BEGUN_WITHIN
    left = 1
    while left:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{left} tasks are not accounted for after {_BEGUN_WITHIN:g} s")
        await asyncio.sleep(_GLANCE)
        left = sum([await here.left(consumer) for consumer in consumers])


async def _held(here: Deployment, run: str) -> int:
    state: Run = fold((stored.entry for stored in await here.platform.journal.read(run, run)), run, run)
    return sum(call.hold is not None for call in state.open_calls())
