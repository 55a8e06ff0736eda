"""One process's tools on the bus: a queue per tool and shard, a presence per tool, an ear for interrupts."""

import asyncio
from functools import partial

from cadre.adapters.nats.bus import hear_interrupts
from cadre.adapters.nats.effects import NatsEffects
from cadre.adapters.nats.metrics import queue_samples
from cadre.adapters.nats.peers import NatsPeers, answer_peers
from cadre.adapters.nats.quarantine import NatsQuarantine
from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.delivery.fair_limiter import FairLimiter
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import SetupError
from cadre.runtime.executor import Executor
from cadre.runtime.in_hand import InHand
from cadre.runtime.invocation import FileAccess
from cadre.service.frame import Platform
from cadre.service.health import AsgiApp
from cadre.telemetry.metrics.meters import Sample
from cadre.tools.loading import AnyTool, load_tools


class ToolHost:
    """The service's part of its process (`cadre.service.Part`)."""

    app: AsgiApp | None = None
    """No HTTP but the frame's health endpoints."""

    def __init__(self, platform: Platform, tools: list[AnyTool]) -> None:
        self._platform = platform
        self._tools = tools
        self._queues: list[Queue] = []

    async def start(self) -> None:
        """Begins to work, then says so in the registry. Raises BusUnavailable, SetupError."""
        platform, topology = self._platform, self._platform.topology
        settings = platform.settings
        effects = NatsEffects(platform.nc, topology)
        await retry(effects.look_for_former, pauses=EVERY_SECOND)
        in_hand = InHand(settings.instance_name(), effects, NatsPeers(platform.nc, topology))
        quarantine = NatsQuarantine(platform.nc, topology)
        executor = Executor(effects, platform.bus, platform.blobs, in_hand, quarantine, platform.clock)
        executor.invocations.files = FileAccess(
            NatsFileIndex(platform.nc, topology), platform.blobs, settings.file_bytes
        )
        limiter = FairLimiter(settings.concurrency)
        await hear_interrupts(platform.nc, topology, executor.invocations.interrupt)
        for tool in self._tools:
            await effects.check_right("_", tool.name)
            await answer_peers(platform.nc, topology, tool.name, in_hand.instance, in_hand.has)
            handler = partial(executor.handle, tool)
            limit = min(tool.concurrency or settings.concurrency, settings.concurrency)
            own = FairLimiter(limit, queues=topology.shards, within=limiter)
            if tool.concurrency is not None:
                executor.invocations.limiters[tool.name] = own
            consumer, filter_of = (
                topology.tool_consumer(tool.name),
                partial(topology.call_filter, tool=tool.name),
            )
            self._queues += await Queue.start_all(platform.nc, topology, consumer, filter_of, handler, own)
        await platform.registry.announce([platform.presence(tool=tool.card) for tool in self._tools])

    def unready(self) -> str | None:
        """Returns why no calls are taken yet; None when they are."""
        return None if len(self._queues) == len(self._tools) * self._platform.topology.shards else "starting"

    async def samples(self) -> list[Sample]:
        """Returns the queues' metrics."""
        return queue_samples(self._queues)

    async def drain(self, grace: float) -> None:
        """Takes no more calls; those at work have `grace` seconds, the rest goes back to the queues."""
        await asyncio.gather(*(queue.drain(grace) for queue in self._queues))


def gather_tools(modules: tuple[str, ...]) -> list[AnyTool]:
    """The tools of all modules. Raises SetupError, also when two of them share a name."""
    found: dict[str, tuple[AnyTool, str]] = {}
    for module in modules:
        for tool in load_tools(module):
            there = found.setdefault(tool.name, (tool, module))
            if there[0] is not tool:
                raise SetupError(
                    f"{there[1]} and {module} both define a tool {tool.name!r}: rename one by @tool(name=…)"
                )
    return [tool for tool, _ in found.values()]
