"""Snapshots under a fixed name in the object store: a faster start, never the truth."""

import asyncio

from nats.aio.client import Client

from cadre.adapters.nats.objects.store import NatsObjects
from cadre.errors import BusUnavailable, Fenced, RetryableError, UnreadableMessage
from cadre.protocol.topology import Topology

_TIMEOUT_SECONDS = 30.0


class NatsSnapshots:
    """Keeps one object per name; the last one saved wins."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._objects = NatsObjects(nc, topology.blob_bucket)

    async def load(self, name: str) -> bytes | None:
        """Returns the content; None when there is none. Raises BusUnavailable, also while parts of it are missing."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return await self._objects.get(name)
        except (RetryableError, UnreadableMessage, TimeoutError) as error:
            raise BusUnavailable(f"loading {name}", str(error) or "it is incomplete") from error

    async def save(self, name: str, data: bytes) -> None:
        """Stores the content in the place of what the name held. Raises BusUnavailable."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                staged = await self._objects.stage(name, data)
                while True:
                    try:
                        return await self._objects.commit(staged, await self._objects.read(name))
                    except Fenced:
                        continue
        except (RetryableError, UnreadableMessage, TimeoutError) as error:
            raise BusUnavailable(f"saving {name}", str(error) or "no answer in time") from error
