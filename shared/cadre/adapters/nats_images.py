"""Snapshots under a fixed name in the object store: a faster start, never the truth."""

from __future__ import annotations

import asyncio

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from cadre.errors import BusUnavailable
from cadre.subjects import Topology

_WITHIN = 30.0


class NatsImages:
    """Keeps one object per name, the last put wins."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._bucket = topology.blob_bucket

    async def load(self, name: str) -> bytes | None:
        """None when there is none. Raises BusUnavailable, also for one whose parts are not all there."""
        try:
            async with asyncio.timeout(_WITHIN):
                store = await self._nc.jetstream().object_store(self._bucket)
                return (await store.get(name)).data or b""
        except nats.js.errors.NotFoundError:
            return None
        except (nats.errors.Error, TimeoutError) as error:
            raise BusUnavailable(f"loading {name}", error or "it is incomplete") from error

    async def save(self, name: str, data: bytes) -> None:
        """Raises BusUnavailable."""
        try:
            async with asyncio.timeout(_WITHIN):
                store = await self._nc.jetstream().object_store(self._bucket)
                await store.put(name, data)
        except (nats.errors.Error, TimeoutError) as error:
            raise BusUnavailable(f"saving {name}", error or "no answer in time") from error
