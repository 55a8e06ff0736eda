"""One process's interpreters on the bus: a queue per shard for the code of its pool, an ear for interrupts."""

from __future__ import annotations

import asyncio
import os

from cadre.adapters.nats_interrupts import hear_interrupts
from cadre.adapters.nats_marks import NatsMarks
from cadre.adapters.nats_queue import Queue
from cadre.clock import SystemClock
from cadre.errors import SetupError
from cadre.health import AsgiApp
from cadre.service import Platform
from cadre.settings import SandboxSettings
from cadre.slots import Slots
from cadre_sandbox.contract import TIERS, Limits, Python, SandboxError, Tier
from cadre_sandbox.keeping import Keeping
from cadre_sandbox.running import Running
from cadre_sandbox.sandbox import Sandbox
from cadre_sandbox.serving import Serving
from cadre_sandbox.telling import Teller


class SandboxHost:
    """The service's part of its process (`cadre.service.Part`)."""

    app: AsgiApp | None = None
    """No HTTP but the frame's health endpoints."""

    def __init__(self, platform: Platform, settings: SandboxSettings) -> None:
        self._platform = platform
        self._settings = settings
        self._sandbox = new_sandbox(settings)
        self._keeping = Keeping(self._sandbox, settings.sessions, settings.idle_seconds)
        self._running: Running | None = None
        self._queues: list[Queue] = []

    async def start(self) -> None:
        """Begins to work. Raises BusUnavailable, and SetupError where code cannot be run safely."""
        platform, topology, pool = self._platform, self._platform.topology, self._settings.pool
        tier = await started(self._sandbox)
        teller = Teller(platform.blobs, platform.settings.instance_name(), tier)
        self._running = Running(self._keeping, platform.blobs, teller, SystemClock())
        serving = Serving(self._running, platform.bus, NatsMarks(platform.nc, topology), pool)
        slots = Slots(at_work(self._settings), queues=topology.shards)
        await hear_interrupts(platform.nc, topology, self._keeping.interrupt)
        for shard in range(topology.shards):
            queue = Queue(
                platform.nc,
                topology.stream(shard),
                topology.code_consumer(pool),
                topology.code_filter(shard, pool),
                serving.handle,
                credit=slots,
            )
            await queue.start()
            self._queues.append(queue)

    def unready(self) -> str | None:
        if self._running is None or len(self._queues) < self._platform.topology.shards:
            return "starting"
        return self._running.trouble

    def about(self) -> dict[str, str]:
        return {"pool": self._settings.pool, "tier": self._sandbox.tier}

    async def drain(self, grace: float) -> None:
        """Takes no more code; blocks at work have `grace` seconds, the rest goes back to the queues."""
        await asyncio.gather(*(queue.drain(grace) for queue in self._queues))
        await self._keeping.close()
        await self._sandbox.close()


def new_sandbox(settings: SandboxSettings) -> Sandbox:
    modules = [module.strip() for module in settings.modules.split(",") if module.strip()]
    return Sandbox(
        minimum=_tier(settings.tier),
        pool=settings.ready,
        most=Limits(seconds=settings.seconds, memory_mb=settings.memory_mb),
        python=Python(executable=settings.python, modules=modules)
        if settings.python
        else Python(modules=modules),
    )


async def started(sandbox: Sandbox) -> Tier:
    """The tier that was reached. Raises SetupError."""
    try:
        await sandbox.start()
    except SandboxError as error:
        raise SetupError(str(error)) from error
    return sandbox.tier


def at_work(settings: SandboxSettings) -> int:
    """Blocks of code that run at once: their time limits are of no use where they starve each other."""
    return min(settings.concurrency or 2 * len(os.sched_getaffinity(0)), settings.sessions)


def _tier(name: str) -> Tier:
    return next(tier for tier in TIERS if tier == name)
