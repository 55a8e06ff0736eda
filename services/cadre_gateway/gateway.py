"""One gateway process: its parts put together, its readiness, its end."""

from __future__ import annotations

import asyncio
import logging

from fastapi import FastAPI

from cadre.adapters.nats_history import History
from cadre.adapters.nats_images import NatsImages
from cadre.adapters.nats_sessions import NatsSessions
from cadre.adapters.nats_tail import Tail, identities
from cadre.errors import BusUnavailable
from cadre.ports import Stored
from cadre.service import Platform
from cadre_gateway.app import build
from cadre_gateway.desk import Desk
from cadre_gateway.keeping import Keeper

log = logging.getLogger("cadre.gateway")


class Gateway:
    """The service's Part."""

    def __init__(self, desk: Desk, keeper: Keeper) -> None:
        self._desk = desk
        self._keeper = keeper
        self.app: FastAPI = build(desk)
        self._caught_up = False
        self._saving = asyncio.create_task(self._save_now_and_then(), name="keeper")

    def unready(self) -> str | None:
        """Why this gateway should get no requests now; None when it should."""
        desk = self._desk
        if desk.draining.is_set():
            return "stopping"
        if not desk.platform.nc.is_connected:
            return "not connected to NATS"
        if failure := desk.tail.failure():
            return f"reading the journals failed: {failure!r}"
        # Once caught up, a reader that starts anew after a pause of the server is no reason to leave.
        if not self._caught_up and (behind := desk.tail.behind()):
            return f"catching up with the journals of {len(behind)} shards"
        self._caught_up = True
        return None

    async def drain(self, grace: float) -> None:
        """Ends the event streams, saves the list of runs and stops reading."""
        self._desk.drain()
        self._saving.cancel()
        if self._keeper.changed:
            try:
                async with asyncio.timeout(max(grace, 1.0)):
                    await self._keeper.save(self._desk.index, self._desk.tail.positions)
            except (BusUnavailable, TimeoutError) as error:
                log.warning("list of runs not saved: %s", error or "no time left")
        await self._desk.tail.stop()

    async def _save_now_and_then(self) -> None:
        while True:
            await self._keeper.wait_until_due()
            try:
                await self._keeper.save(self._desk.index, self._desk.tail.positions)
            except BusUnavailable as error:
                log.warning("list of runs not saved: %s", error)


async def start(platform: Platform) -> Gateway:
    """Loads the list of runs and begins to read the journals from there."""
    nc, topology = platform.nc, platform.topology
    keeper = Keeper(NatsImages(nc, topology), topology, await identities(nc, topology))
    index, positions = await keeper.load()

    def on_entry(_: int, stored: Stored) -> None:
        index.apply(stored.seq, stored.entry)
        keeper.note()

    tail = Tail(nc, topology, platform.blobs, on_entry)
    tail.start(positions)
    desk = Desk(
        platform=platform,
        index=index,
        tail=tail,
        history=History(nc, topology, platform.blobs),
        sessions=NatsSessions(nc, topology),
    )
    return Gateway(desk, keeper)
