"""How full JetStream is for a tree: its shard, by Cadre's own limit, and the NATS account.

A stream of a shard cannot be made to refuse writes by its own size (message schedules forbid that), and one that made
room by itself would lose the oldest runs. So the service that starts runs keeps the limit of a shard.
"""

import asyncio
import time
from typing import Any, NamedTuple

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.protocol.topology import Topology

_KNOWN_SECONDS = 1.0
"""Seconds that an answer of the server is taken for true."""


class StorageUsage(NamedTuple):
    """How full one place is, in bytes."""

    where: str
    used: int
    limit: int

    @property
    def share(self) -> float:
        """The part of the limit that is used."""
        return self.used / self.limit


class NatsStorage:
    """Asks the server how full it is, at most once a second for each shard."""

    def __init__(self, nc: Client, topology: Topology, max_bytes: int) -> None:
        self._nc = nc
        self._topology = topology
        self._max_bytes = max_bytes
        self._asking = asyncio.Lock()
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    async def fullest(self, tree: str) -> StorageUsage | None:
        """Returns the fullest place that the tree needs; None when nothing is limited. Raises BusUnavailable."""
        rooms = account_usages(await self._ask("INFO"))
        if self._max_bytes:
            stream = self._topology.stream_of(tree)
            used = (await self._ask(f"STREAM.INFO.{stream}"))["state"]["bytes"]
            rooms.append(StorageUsage(f"stream {stream}", used, self._max_bytes))
        return max(rooms, key=lambda room: room.share, default=None)

    async def _ask(self, what: str) -> dict[str, Any]:
        async with self._asking:
            at, answer = self._known.get(what, (float("-inf"), {}))
            if time.monotonic() - at > _KNOWN_SECONDS:
                answer = await jetstream.ask(self._nc, "asking how much room there is", what)
                self._known[what] = (time.monotonic(), answer)
        return answer


def account_usages(info: dict[str, Any]) -> list[StorageUsage]:
    """An account has one limit, or one for each number of copies; what is not positive is no limit."""
    tiers = info.get("tiers") or {"": info}
    return [
        StorageUsage(
            f"the NATS account{f' ({name})' if name else ''}", tier["storage"], tier["limits"]["max_storage"]
        )
        for name, tier in tiers.items()
        if tier.get("limits", {}).get("max_storage", -1) > 0
    ]
