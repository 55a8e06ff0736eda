"""One process's tools on the bus: a queue per tool and shard, a presence per tool, an ear for interrupts."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from cadre.adapters.mcp.server import McpServer
from cadre.adapters.nats.bus import hear_interrupts
from cadre.adapters.nats.dead_letters import NatsQuarantine
from cadre.adapters.nats.effects import NatsEffects
from cadre.adapters.nats.metrics import queue_samples
from cadre.adapters.nats.peers import NatsPeers, answer_peers
from cadre.adapters.nats.queues.queue import Queue, ShardQueues
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.adapters.tool_entries import load_entry
from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import SetupError
from cadre.ports import Delivery
from cadre.runtime.executor import Executor, InHand
from cadre.runtime.invocation import FileAccess
from cadre.service.health import AsgiApp
from cadre.service.platform import Platform
from cadre.telemetry.metrics.meters import Sample
from cadre.tools.loading import AnyTool

log = logging.getLogger("cadre.tools")


class _ServedTool:
    """A tool that is on offer, or was: calls that are at work then are finished."""

    def __init__(self, tool: AnyTool) -> None:
        self.tool = tool
        self.queues: ShardQueues[Queue] | None = None


class ToolHost:
    """The service's part of its process (`cadre.service.Part`)."""

    app: AsgiApp | None = None
    """No HTTP but the frame's health endpoints."""

    def __init__(self, platform: Platform, tools: list[AnyTool], servers: Sequence[McpServer] = ()) -> None:
        """`servers` are MCP servers, whose tools come and go; those of the modules have the first claim to a name."""
        self._platform = platform
        self._tools = tools
        self._servers = servers
        self._keeping: list[asyncio.Task[None]] = []
        self._served: dict[str, _ServedTool] = {}
        self._renewing = asyncio.Lock()
        self._is_draining = False

    async def start(self) -> None:
        """Begin to work, then says so in the registry. Raises BusUnavailable, SetupError."""
        platform, topology = self._platform, self._platform.topology
        settings = platform.settings
        self._effects = effects = NatsEffects(platform.nc, topology)
        self._in_hand = InHand(settings.instance_name(), effects, NatsPeers(platform.nc, topology))
        quarantine = NatsQuarantine(platform.nc, topology)
        executor = Executor(effects, platform.bus, platform.blobs, self._in_hand, quarantine, platform.clock)
        executor.invocations.files = FileAccess(
            NatsFileIndex(platform.nc, topology), platform.blobs, settings.file_bytes
        )
        self._executor, self._limiter = executor, FairLimiter(settings.concurrency)
        await hear_interrupts(platform.nc, topology, executor.invocations.interrupt)
        for tool in self._tools:
            await self._serve(tool)
        await self._announce()
        self._keeping = [
            asyncio.create_task(server.serve(self._renew), name=f"MCP server {server.spec.name}")
            for server in self._servers
        ]

    async def _serve(self, tool: AnyTool) -> None:
        """Take the calls of the tool; of one that is served already, as it is now. Raises SetupError."""
        platform, topology = self._platform, self._platform.topology
        settings, in_hand = platform.settings, self._in_hand
        served = self._served.get(tool.name)
        if served is None:
            served = _ServedTool(tool)
            await self._effects.check_right("_", tool.name)
            await answer_peers(platform.nc, topology, tool.name, in_hand.instance, in_hand.has)
            self._served[tool.name] = served
        served.tool = tool
        if served.queues is not None:
            return
        limit = min(tool.concurrency or settings.concurrency, settings.concurrency)
        own = FairLimiter(limit, queues=topology.shards, within=self._limiter)
        if tool.concurrency is not None:
            self._executor.invocations.limiters[tool.name] = own
        consumer, filter_of = (
            topology.tool_consumer(tool.name),
            partial(topology.call_filter, tool=tool.name),
        )

        async def handle(delivery: Delivery) -> None:
            await self._executor.handle(served.tool, delivery)

        served.queues = await ShardQueues(platform.nc, platform.shards, consumer, filter_of, handle, own, Queue).start()

    async def _announce(self) -> None:
        offered = [one.tool.card for one in self._served.values() if one.queues is not None]
        presences = [self._platform.presence(tool=card) for card in offered]
        await self._platform.registry.announce(presences, part="tools")

    async def _renew(self) -> None:
        """Serve the tools that the MCP servers have now, and no others."""
        async with self._renewing:
            if self._is_draining:
                return
            offered: dict[str, AnyTool] = {tool.name: tool for tool in self._tools}
            for server in self._servers:
                for found in server.tools:
                    if offered.setdefault(found.name, found) is not found:
                        log.warning("%s: a tool %s is served already", server.spec.where, found.name)
            gone = [one for name, one in self._served.items() if name not in offered]
            for tool in offered.values():
                try:
                    await self._serve(tool)
                except SetupError as error:
                    log.warning("tool %s is not offered: %s", tool.name, error)
            queues = [one.queues for one in gone if one.queues is not None]
            for one in gone:
                one.queues = None
            await self._announce()
            await asyncio.gather(*(queue.drain(self._platform.settings.drain_seconds) for queue in queues))

    def _queues(self) -> list[ShardQueues[Queue]]:
        return [one.queues for one in self._served.values() if one.queues is not None]

    def unready(self) -> str | None:
        """Return why no calls are taken yet; None when they are."""
        if not all(tool.name in self._served for tool in self._tools):
            return "starting"
        troubles = [f"MCP server {one.spec.name}: {one.trouble}" for one in self._servers if one.trouble is not None]
        return "; ".join(troubles) or None

    async def samples(self) -> list[Sample]:
        """Return the queues' metrics."""
        return queue_samples([queue for one in self._queues() for queue in one.queues])

    async def drain(self, grace: float) -> None:
        """Take no more calls; those at work have `grace` seconds, the rest goes back to the queues."""
        self._is_draining = True
        await asyncio.gather(*(queue.drain(grace) for queue in self._queues()))
        for server in self._servers:
            server.stop()
        await asyncio.gather(*self._keeping)


def gather_tools(modules: tuple[str, ...]) -> list[AnyTool]:
    """Return the tools of all modules. Raises SetupError, also when two of them share a name."""
    found: dict[str, tuple[AnyTool, str]] = {}
    for module in modules:
        for tool in load_entry(module, to_serve=True):
            there = found.setdefault(tool.name, (tool, module))
            if there[0] is not tool:
                raise SetupError(
                    f"{there[1]} and {module} both define a tool {tool.name!r}: rename one by @tool(name=…)"
                )
    return [tool for tool, _ in found.values()]
