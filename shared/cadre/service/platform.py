"""The resources of a service on one NATS account, and the parts that it adds to its process."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from cadre.adapters.local_stack import nats_now
from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.journal import NatsJournal
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.server_clock import ServerClock
from cadre.adapters.nats.streams.provision import provision
from cadre.adapters.nats.streams.shard_watch import ShardWatch
from cadre.delivery.retry import EVERY_SECOND, Setup, once_set_up, retry
from cadre.errors import SetupError
from cadre.ports import Journal
from cadre.protocol.cards import AgentCard, Presence, SandboxCard, ToolCard
from cadre.protocol.topology import Topology
from cadre.service.health import AsgiApp
from cadre.settings import Settings
from cadre.telemetry.metrics.meters import Meters, Sample

log = logging.getLogger("cadre.service")


class Part(Protocol):
    """A part that a service adds to the frame."""

    @property
    def app(self) -> AsgiApp | None:
        """HTTP below the health endpoints."""
        ...

    def unready(self) -> str | None:
        """Return what is missing, in one line; None when the service can work."""
        ...

    async def drain(self, grace: float) -> None:
        """Stop taking work, finish or hand back what is in hand within `grace` seconds."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A part that says more of itself at /readyz."""

    def about(self) -> dict[str, str]: ...


@runtime_checkable
class Measured(Protocol):
    """A part that adds its own figures to the metrics."""

    async def samples(self) -> list[Sample]:
        """Return the samples as they are now. Raises BusUnavailable."""
        ...


class Together:
    """Several parts of one process, as its part."""

    app: AsgiApp | None = None
    """No HTTP but the frame's health endpoints."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def unready(self) -> str | None:
        """Return what is missing in one of them, in one line; None when all can work."""
        return next((lack for part in self._parts if (lack := part.unready()) is not None), None)

    async def samples(self) -> list[Sample]:
        """Return the figures of all. Raises BusUnavailable."""
        return [one for part in self._parts if isinstance(part, Measured) for one in await part.samples()]

    async def drain(self, grace: float) -> None:
        """Take no more work; what is in hand has `grace` seconds."""
        await asyncio.gather(*(part.drain(grace) for part in self._parts))


class Opening:
    """The condition for which a part waits before it works: /readyz reports it until then."""

    def __init__(self) -> None:
        self.lacks = "starting"

    def waits(self, reason: str) -> None:
        """Note what it waits for now; "" when that is there."""
        self.lacks = reason or "starting"


class Platform(NamedTuple):
    """The resources that the frame gives to a part."""

    settings: Settings
    nc: NatsClient
    topology: Topology
    shards: ShardWatch
    registry: NatsRegistry
    bus: NatsBus
    journal: Journal
    blobs: NatsBlobs
    health_url: str
    started_at: float
    clock: ServerClock
    meters: Meters
    opening: Opening

    def presence(
        self,
        *,
        agent: AgentCard | None = None,
        tool: ToolCard | None = None,
        sandbox: SandboxCard | None = None,
        revision: str = "",
        prompts: str = "",
        spec: str = "",
    ) -> Presence:
        """Return this replica's registry entry for a card."""
        return Presence(
            instance=self.settings.instance_name(),
            host=socket.gethostname(),
            pid=os.getpid(),
            health=self.health_url,
            started_at=self.started_at,
            agent=agent,
            tool=tool,
            sandbox=sandbox,
            revision=revision,
            prompts=prompts,
            spec=spec,
            beside=self.settings.beside if agent is not None else "",
        )


Start = Callable[[Platform], Awaitable[Part]]


async def open_platform(
    name: str,
    settings: Settings,
    health_url: str = "",
    meters: Meters | None = None,
    given_up: Callable[[str], None] | None = None,
    waits: Callable[[str], None] = lambda _: None,
) -> Platform:
    """Connect (waiting for the server), provisions, and begins to listen to the registry.

    What others have yet to set up is waited for as long as the settings say; `waits` is called with what that is, and
    with "" once it is there. Raises SetupError.
    """
    setup, address = Setup(settings.setup_seconds, waits), partial(nats_now, settings)
    nc = await connect(settings, f"cadre {name}", given_up=given_up, address=address, setup=setup)
    # Streams may be without a leader for a moment after a server's start.
    topology = await once_set_up(lambda: provision(nc, settings), setup, log)
    clock = ServerClock(settings.clock_skew_seconds)
    await retry(lambda: clock.measure(nc, topology.stream(0)), pauses=EVERY_SECOND, log=log)
    if (problem := clock.problem()) is not None:
        await nc.close()
        raise SetupError(problem)
    blobs = NatsBlobs(nc, topology, clock)
    platform = Platform(
        settings=settings,
        nc=nc,
        topology=topology,
        shards=ShardWatch(nc, topology),
        registry=NatsRegistry(nc, topology, clock, settings.away_days),
        bus=NatsBus(nc, topology, blobs),
        journal=NatsJournal(nc, topology, blobs),
        blobs=blobs,
        health_url=health_url,
        started_at=clock.now(),
        clock=clock,
        meters=meters if meters is not None else Meters(on=False),
        opening=Opening(),
    )
    platform.registry.shards = lambda: platform.shards.served
    await platform.registry.start()
    return platform
