"""Watches for shards that are added to the deployment, and has this process take part in them."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from nats.aio.client import Client

from cadre.adapters.nats.streams.provision import Lack, layout_after
from cadre.errors import BusUnavailable, CadreError
from cadre.protocol.topology import Layout, Topology

log = logging.getLogger("cadre.nats")

_LOOK_SECONDS = 2.0

BEHIND = "shards-behind"
"""Code of a process that does not take part in all shards."""

Follower = Callable[[], Awaitable[None]]
"""Takes part in the shards that the topology has and it has not. Raises CadreError: it is called again later."""


class ShardWatch:
    """Keeps the topology of a process up to date. Every other second it asks for the stream that the next growth would
    make first."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self.topology = topology
        self.served = topology.shards
        """Number of shards in which all of this process takes part."""
        self._followers: list[Follower] = []
        self._problem: str | None = None

    def follow(self, follower: Follower) -> None:
        """Call `follower` whenever there are more shards than before."""
        self._followers.append(follower)

    def leave(self, follower: Follower) -> None:
        """Call `follower` no more."""
        with contextlib.suppress(ValueError):
            self._followers.remove(follower)

    async def reload(self) -> None:
        """Learn which shards there are now. Raises BusUnavailable, SetupError."""
        known = self.topology.layout
        found = await layout_after(self._nc, self.topology, known)
        if _extent(found) > _extent(self.topology.layout):
            log.info("shards: %s%s", found, f", growing to {found.growing}" if found.growing else "")
            self.topology.layout = found

    async def knows(self, tree: str) -> bool:
        """Return whether a tree's generation of shards exists; one that is not known here is asked for. Raises
        BusUnavailable, SetupError."""
        if not self.topology.knows(tree):
            await self.reload()
        return self.topology.knows(tree)

    def behind(self) -> str | None:
        """Say that there are shards in which this process does not take part yet; None when it does in all."""
        shards = self.topology.shards
        if self.served >= shards and self._problem is None:
            return None
        known = f"{self.served} of {shards} shards" if self.served < shards else f"{shards} shards of more"
        return f"takes part in {known}{f': {self._problem}' if self._problem else ''}"

    def trouble(self) -> Lack | None:
        """Say so if trees may begin there; before that the process lacks nothing."""
        behind = self.behind()
        is_open = self.served < self.topology.layout.generations[-1]
        return Lack(BEHIND, behind) if behind is not None and is_open else None

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not self._nc.is_connected:
                continue
            try:
                await self.reload()
                await self._take_part()
                self._problem = None
            except BusUnavailable as error:
                log.debug("which shards there are is not known at the moment: %s", error)
            except CadreError as error:
                if str(error) != self._problem:
                    log.warning("shards are added, and this process does not follow: %s", error)
                self._problem = str(error)

    async def _take_part(self) -> None:
        shards = self.topology.shards
        if self.served < shards:
            for follower in list(self._followers):
                await follower()
            self.served = shards
            log.info("this process takes part in %d shards", shards)


def _extent(layout: Layout) -> tuple[int, int, bool]:
    """Return what grows from each state of a layout to the next."""
    return len(layout.generations), layout.growing, layout.serves
