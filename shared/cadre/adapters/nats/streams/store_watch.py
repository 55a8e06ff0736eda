"""Watches whether the NATS store is still the one that a service began with, and whether it stores what it is sent."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterable

from nats.aio.client import Client

from cadre.adapters.nats.connection.keys import may_write_probes
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import existing, stream_names
from cadre.errors import BusFull, BusUnavailable, CadreError
from cadre.protocol.topology import Topology
from cadre.settings import Settings

CHECK_SECONDS = 10.0
"""Seconds between two checks while the connection holds; after a lost one the next check is at once."""

REFUSES = "the NATS store refuses writes"
"""Begins the text about a store that has failed: its server is to be restarted once there is space."""

FULL = "the NATS store is full"
"""Begins the text about a store that has reached a limit of the server: it goes on by itself once there is room."""

_LOOK_SECONDS = 0.5
_PROBE_TTL = "1s"
_RESTART_ALL = (
    "Bring the old store back and all goes on; or begin without its runs: make the streams (`cadre provision`, or start"
    " any service) and restart every service"
)


class StoreWatch:
    """Compares a deployment's streams with those that were there at first, by the time at which each was made."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology
        self._created: dict[str, str] = {}
        self._reconnects = nc.stats["reconnects"]
        self._lost: str | None = None
        self._refuses: str | None = None
        self._shards = itertools.cycle(range(topology.shards))
        self._shard = next(self._shards)

    async def start(self) -> asyncio.Task[None]:
        """Remembers the streams as they are now, then watches until the task is cancelled. Raises BusUnavailable."""
        for name in stream_names(self._topology):
            if (created := await jetstream.created(self._nc, name)) is not None:
                self._created[name] = created
        return asyncio.create_task(self._watch(), name="store")

    def lost(self) -> str | None:
        """Says what happened when this is not the store that the service began with."""
        return self._lost

    def trouble(self) -> str | None:
        """What keeps the store from being used, and what to do; None when nothing does."""
        if self._nc.stats["reconnects"] != self._reconnects:
            return "the connection to NATS is back: its store is being checked"
        return self._lost or self._refuses

    async def check(self) -> None:
        """Looks once at every stream, then writes to one shard; the next check writes to the next one, or to the same
        one as long as that refuses."""
        reconnects = self._nc.stats["reconnects"]
        self._lost = await self._difference()
        self._reconnects = reconnects
        if self._lost is None and may_write_probes(self._nc):
            self._refuses = await refusal(self._nc, self._topology, [self._shard])
            if self._refuses is None:
                self._shard = next(self._shards)

    async def _watch(self) -> None:
        while True:
            # A server that does not answer is not a lost store: what was known stays known.
            with contextlib.suppress(BusUnavailable):
                await self.check()
            for _ in range(round(CHECK_SECONDS / _LOOK_SECONDS)):
                await asyncio.sleep(_LOOK_SECONDS)
                if self._nc.is_connected and self._nc.stats["reconnects"] != self._reconnects:
                    break

    async def _difference(self) -> str | None:
        shards = {self._topology.stream(shard) for shard in range(self._topology.shards)}
        for name, before in self._created.items():
            now = await jetstream.created(self._nc, name)
            if now is None:
                return f"the NATS store was lost or is another one: it has no stream {name}. {_RESTART_ALL}"
            if now != before and name in shards:
                return (
                    f"the NATS store is another one than at the start: its stream {name} was made {now}, not"
                    f" {before}. {_RESTART_ALL}"
                )
        return None


async def refusal(nc: Client, topology: Topology, shards: Iterable[int]) -> str | None:
    """Writes a message to each shard, which goes by itself; says which shard does not store it, and what to do."""
    for shard in shards:
        headers = {jetstream.ROLLUP: "sub", jetstream.TTL: _PROBE_TTL}
        try:
            await jetstream.append(nc, topology.store_probe(shard), b"", headers=headers)
        except BusFull as error:
            return f"{FULL}: {topology.stream(shard)}: {error}. Raise the limit: no restart is needed"
        except CadreError as error:
            if not nc.is_connected:
                return None
            return (
                f"{REFUSES}: {topology.stream(shard)}: {error}. Is its disk full? Make space, then restart the NATS"
                " server: it may go on refusing until then"
            )
    return None


async def refusals(nc: Client, settings: Settings) -> list[str]:
    """Returns `refusal` of the deployment as a list, as `provision.check` returns what is wrong with its streams."""
    topology = await existing(nc, settings)
    if topology is None or not may_write_probes(nc):
        return []
    text = await refusal(nc, topology, range(topology.shards))
    return [] if text is None else [text]
