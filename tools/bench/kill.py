"""The pause of a run when the process that works for it is killed: kill -9 in a member's model call."""

import asyncio
import time
from statistics import median
from typing import Any

from bench.delegation import TASK, decide
from bench.deployment import ENDS_WITHIN, Deployment, deployment
from bench.instant import InstantModel
from bench.processes import Member
from cadre.journal.events import DelegateFinished
from cadre.spec.agent import AgentSpec


async def measure(times: int) -> dict[str, Any]:
    async with deployment() as here:
        await here.serve(AgentSpec(name="boss", description="Delegates.", team=["worker"]), InstantModel(decide))
        seconds = [await _once(here) for _ in range(times)]
        return {"kill_to_report_s": median(seconds), "kill_to_report_s_each": seconds}


async def _once(here: Deployment) -> float:
    shards = here.platform.topology.shards
    victim = await Member.start(here.nats.url, shards, "--hold")
    standby: Member | None = None
    try:
        await here.offered("worker")
        task = here.task("boss", TASK)
        reported = here.journal.awaits(task.run, DelegateFinished)
        await here.platform.bus.send(task, "bench")
        await victim.says("asked", ENDS_WITHIN)
        # Started only now: the task must be in the victim's hands.
        standby = await Member.start(here.nats.url, shards)
        killed = time.perf_counter()
        await victim.kill()
        entry = await asyncio.wait_for(reported, ENDS_WITHIN)
        took = time.perf_counter() - killed
        report = next(event for event in entry.events if isinstance(event, DelegateFinished))
        if report.state != "success":
            raise RuntimeError(f"the member's run did not survive: {report}")
        return took
    finally:
        await victim.stop()
        if standby is not None:
            await standby.stop()
