"""The program of an agent on the bus: a queue per shard for its runs, an ear for interrupts, an address for its
processes."""

import platform as machine
from functools import partial
from pathlib import Path

from cadre import __version__
from cadre.adapters.nats.bus import hear_chunks, hear_interrupts
from cadre.adapters.nats.dead_letters import NatsQuarantine
from cadre.adapters.nats.handover import NatsHandover
from cadre.adapters.nats.metrics import queue_samples
from cadre.adapters.nats.queues.queue import NatsDelivery, Queue, ShardQueues
from cadre.adapters.nats.seed_secret import pool_secret
from cadre.adapters.program.address import ProgramAddress
from cadre.adapters.program.processes import ProgramProcesses
from cadre.adapters.program.runner import ProgramRunner, ProgramTerms
from cadre.delivery.fair_limiter import FairLimiter
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.protocol.cards import SandboxCard
from cadre.runtime.code_calls import CodeCallHandler
from cadre.service.health import AsgiApp
from cadre.service.platform import Platform
from cadre.spec.agent import AgentSpec
from cadre.spec.program import pool_of, program_of
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample

TIER = "process"
"""The isolation of a program: that of a process of its user."""


class ProgramHost:
    """The runner of an agent's program, as a part of its process (`cadre.service.platform.Part`).

    Args:
        folder: that of the agent's file, which the paths in its section are relative to.
    """

    app: AsgiApp | None = None

    def __init__(self, platform: Platform, spec: AgentSpec, folder: Path) -> None:
        self._platform = platform
        self._spec = spec
        self._section = program_of(spec)
        self._pool = pool_of(spec.name)
        self._folder = folder
        self._address = ProgramAddress(spec)
        self._runner: ProgramRunner | None = None
        self._handler: CodeCallHandler | None = None
        self._queues: ShardQueues[Queue] | None = None
        self._handover = NatsHandover(platform.nc, platform.topology, self._pool, self._take)

    async def start(self) -> None:
        """Import the program, and begin to work. Raises BusUnavailable, and SetupError if it cannot be imported."""
        platform, topology, section = self._platform, self._platform.topology, self._section
        secret = await retry(lambda: pool_secret(platform.nc, topology, self._pool), pauses=EVERY_SECOND)
        instance = platform.settings.instance_name()
        terms = ProgramTerms(instance, section.hold, section.processes, secret)
        runner = ProgramRunner(self._address, platform.blobs, platform.clock, terms)
        models = [self._spec.model, *self._spec.model.fallbacks]
        keys = tuple(model.key_env for model in models)
        runner.processes = ProgramProcesses(
            section.main, section.python, self._folder, self._address.environment(), keys, runner.lost
        )
        runner.listen, runner.forget = self._handover.listen, self._handover.forget
        runner.hear = partial(hear_chunks, platform.nc, topology)
        await runner.processes.start()
        self._address.start()
        self._runner = runner
        self._handler = CodeCallHandler(runner, platform.bus, NatsQuarantine(platform.nc, topology), self._pool)
        await hear_interrupts(platform.nc, topology, runner.interrupt)
        limiter = FairLimiter(section.processes, queues=topology.shards)
        consumer, filter_of = (
            topology.code_consumer(self._pool),
            partial(topology.code_filter, pool=self._pool),
        )
        self._queues = await ShardQueues(
            platform.nc, platform.shards, consumer, filter_of, self._handle, limiter, Queue
        ).start()
        card = SandboxCard(
            pool=self._pool,
            tier=TIER,
            python=machine.python_version() if not section.python else "",
            sessions=section.processes,
            version=__version__,
        )
        await platform.registry.announce([platform.presence(sandbox=card)], part=self._pool)

    async def _handle(self, delivery: NatsDelivery) -> None:
        assert self._handler is not None
        await self._handler.handle(delivery, lambda run: self._handover.hand_over(delivery, run))

    async def _take(self, delivery: NatsDelivery) -> bool:
        """Take over what another replica was delivered, if the process for it is here."""
        handler, shard = self._handler, self._platform.topology.shard(delivery.address.tree)
        queues = self._queues.queues if self._queues is not None else []
        if handler is None or shard >= len(queues) or not await handler.can_continue(delivery):
            return False
        return queues[shard].adopt(delivery, handler.handle)

    def unready(self) -> str | None:
        """Return why no run is served yet; None when they are."""
        return "starting" if self._queues is None else None

    async def samples(self) -> list[Sample]:
        """Return the figures of its queues and processes."""
        runner, queues = self._runner, self._queues
        if runner is None or queues is None:
            return []
        counts = {"busy": runner.busy, "warm": runner.waiting}
        return [
            *queue_samples(queues.queues),
            *(Sample(names.SANDBOX_SESSIONS, n, {names.SESSION_STATE: s}) for s, n in counts.items()),
        ]

    async def drain(self, grace: float) -> None:
        """Take no more runs; those at work have `grace` seconds, the rest goes back to the queues."""
        if self._queues is not None:
            await self._queues.drain(grace)
        if self._runner is not None:
            await self._runner.close()
        await self._address.close()
