"""One process's interpreters on the bus: a queue per shard for the code of its pool, an ear for interrupts."""

import asyncio
import logging
import os
import sys
from collections import Counter
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from cadre import __version__
from cadre.adapters.nats.bus import hear_interrupts
from cadre.adapters.nats.dead_letters import NatsQuarantine
from cadre.adapters.nats.handover import NatsHandover
from cadre.adapters.nats.metrics import queue_samples
from cadre.adapters.nats.queues.queue import NatsDelivery, Queue, ShardQueues
from cadre.adapters.nats.seed_secret import pool_secret
from cadre.delivery.fair_limiter import FairLimiter
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import SettingError, SetupError
from cadre.protocol.cards import Presence, SandboxCard, ToolCard
from cadre.runtime.code_calls import CodeCallHandler
from cadre.service.health import AsgiApp
from cadre.service.platform import Platform
from cadre.settings import NAME, read
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_sandbox.interpreters.contract import BlockLimits, Python, SandboxError, Tier
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.serving.exchange import AnswerBuilder
from cadre_sandbox.serving.interpreter_tool import InterpreterTool, card_of
from cadre_sandbox.serving.run_block import CodeRunner
from cadre_sandbox.serving.warm_pool import WarmPool


class SandboxSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one `cadre sandbox`: each field is set by `CADRE_SANDBOX_<FIELD>`."""

    pool: str = "default"
    """The pool: it runs the code of agents that name this pool."""
    tier: Tier = "landlock"
    """The least isolation; below it no code is run."""
    sessions: Annotated[int, Meta(ge=1)] = 32
    """Interpreters at once, those at work and those kept warm between the steps of a run."""
    concurrency: Annotated[int, Meta(ge=0)] = 0
    """Blocks of code at work at once; 0: two per processor."""
    ready: Annotated[int, Meta(ge=0)] = 2
    """Fresh interpreters that wait for their run."""
    idle_seconds: Annotated[float, Meta(ge=0)] = 600.0
    """Seconds for which an interpreter is kept for a run that does not come back."""
    seconds: Annotated[float, Meta(ge=0.1)] = 300.0
    """Maximum seconds that a block may compute, even if its agent asks for more."""
    memory_mb: Annotated[int, Meta(ge=16)] = 2048
    """Maximum memory of an interpreter, even if its agent asks for more."""
    modules: str = ""
    """Imported once for all interpreters, separated by commas: numpy,pandas."""
    python: str = ""
    """The Python that runs the code, with the packages that code may import; empty: this one."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.pool):
            raise SettingError(
                f"CADRE_SANDBOX_POOL={self.pool!r}: use 1 to 64 letters, digits, '_' and '-'"
                " (it becomes part of NATS subjects)"
            )


def read_sandbox_settings(**options: object) -> SandboxSettings:
    """Read the settings as `cadre.settings.read` does. Raises SettingError."""
    return read(SandboxSettings, "CADRE_SANDBOX_", **options)


log = logging.getLogger("cadre.sandbox")


class SandboxHost:
    """The sandbox service as the part of its process that the frame runs (`cadre.service.platform.Part`)."""

    app: AsgiApp | None = None
    """No HTTP but the frame's health endpoints."""

    def __init__(self, platform: Platform, settings: SandboxSettings) -> None:
        self._platform = platform
        self._settings = settings
        self._sandbox = new_sandbox(settings)
        self._handover = NatsHandover(platform.nc, platform.topology, settings.pool, self._take)
        self._warm_pool = WarmPool(self._sandbox, settings.sessions, settings.idle_seconds, self._handover)
        self._runner: CodeRunner | None = None
        self._code_calls: CodeCallHandler | None = None
        self._queues: ShardQueues[Queue] | None = None
        self._calls: ShardQueues[Queue] | None = None

    async def start(self) -> None:
        """Begin to work. Raises BusUnavailable, and SetupError where code cannot be run safely."""
        platform, topology, pool = self._platform, self._platform.topology, self._settings.pool
        tier = await start_sandbox(self._sandbox)
        answer_builder = AnswerBuilder(platform.blobs, platform.settings.instance_name(), tier)
        secret = await retry(lambda: pool_secret(platform.nc, topology, pool), pauses=EVERY_SECOND, log=log)
        self._runner = CodeRunner(self._warm_pool, platform.blobs, answer_builder, platform.clock, secret)
        self._code_calls = CodeCallHandler(self._runner, platform.bus, NatsQuarantine(platform.nc, topology), pool)
        limiter = FairLimiter(blocks_at_once(self._settings), queues=topology.shards)
        await hear_interrupts(platform.nc, topology, self._warm_pool.interrupt)
        consumer, filter_of = topology.code_consumer(pool), partial(topology.code_filter, pool=pool)
        self._queues = await ShardQueues(
            platform.nc, platform.shards, consumer, filter_of, self._handle, limiter, Queue
        ).start()
        card = await self._serve_tool(limiter)
        await platform.registry.announce([self._presence(tier), platform.presence(tool=card)])

    async def _serve_tool(self, limiter: FairLimiter) -> ToolCard:
        """Offer the pool's interpreters as a tool, to agents that write no code themselves."""
        platform, topology = self._platform, self._platform.topology
        card = card_of(self._settings.pool, self._settings.modules)
        quarantine = NatsQuarantine(platform.nc, topology)
        tool = InterpreterTool(self._warm_pool, platform.bus, platform.blobs, quarantine, platform.clock)
        tool.introduce(platform.settings.instance_name(), self._settings.modules)
        own = FairLimiter(blocks_at_once(self._settings), queues=topology.shards, within=limiter)
        consumer, filter_of = topology.tool_consumer(card.name), partial(topology.call_filter, tool=card.name)
        self._calls = await ShardQueues(
            platform.nc, platform.shards, consumer, filter_of, tool.handle, own, Queue
        ).start()
        return card

    async def _handle(self, delivery: NatsDelivery) -> None:
        assert self._code_calls is not None
        await self._code_calls.handle(delivery, lambda run: self._handover.hand_over(delivery, run))

    async def _take(self, delivery: NatsDelivery) -> bool:
        """Take over what another process was delivered, if the interpreter for it is here."""
        handler, shard = self._code_calls, self._platform.topology.shard(delivery.address.tree)
        queues = self._queues.queues if self._queues is not None else []
        if handler is None or shard >= len(queues) or not await handler.can_continue(delivery):
            return False
        return queues[shard].adopt(delivery, handler.handle)

    def _presence(self, tier: Tier) -> Presence:
        card = SandboxCard(
            pool=self._settings.pool,
            tier=tier,
            python=self._sandbox.python,
            sessions=self._settings.sessions,
            version=__version__,
        )
        return self._platform.presence(sandbox=card)

    def _all_queues(self) -> list[ShardQueues[Queue]]:
        return [queues for queues in (self._queues, self._calls) if queues is not None]

    def unready(self) -> str | None:
        """Return why no code can be run at the moment; None when it can."""
        if self._runner is None or self._calls is None:
            return "starting"
        return self._runner.unavailable

    def about(self) -> dict[str, str]:
        """Return the details of this process in /readyz, in addition to its readiness."""
        counts = self._runner.counts if self._runner else Counter[str]()
        served = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in sorted(counts.items()))
        return {"pool": self._settings.pool, "tier": self._sandbox.tier, "served": served or "nothing"}

    async def samples(self) -> list[Sample]:
        """Return the metrics of its queues, of its interpreters, and of what the calls met."""
        sessions = {"busy": self._warm_pool.busy, "warm": len(self._warm_pool.warm)}
        counts = self._runner.counts if self._runner else Counter[str]()
        return [
            *queue_samples([queue for one in self._all_queues() for queue in one.queues]),
            *(Sample(names.SANDBOX_SESSIONS, n, {names.SESSION_STATE: s}) for s, n in sessions.items()),
            *(Sample(names.SANDBOX_CALLS, n, {names.HOW: how}) for how, n in counts.items()),
        ]

    async def drain(self, grace: float) -> None:
        """Take no more code; blocks at work have `grace` seconds, the rest goes back to the queues."""
        await asyncio.gather(*(queues.drain(grace) for queues in self._all_queues()))
        await self._warm_pool.close()
        await self._sandbox.close()


def new_sandbox(settings: SandboxSettings) -> Sandbox:
    """Return the sandbox that the settings describe, not started yet."""
    modules = [module.strip() for module in settings.modules.split(",") if module.strip()]
    return Sandbox(
        minimum=settings.tier,
        pool=settings.ready,
        most=BlockLimits(seconds=settings.seconds, memory_mb=settings.memory_mb),
        python=Python(executable=settings.python or sys.executable, modules=modules),
    )


async def start_sandbox(sandbox: Sandbox) -> Tier:
    """Start the sandbox and return the tier that was reached. Raises SetupError."""
    try:
        await sandbox.start()
    except SandboxError as error:
        raise SetupError(str(error)) from error
    return sandbox.tier


def blocks_at_once(settings: SandboxSettings) -> int:
    """Return how many blocks of code run at once: their time limits are of no use where they starve each other."""
    return min(settings.concurrency or 2 * len(os.sched_getaffinity(0)), settings.sessions)
