"""How much room JetStream has left for a tree: in its shard, by Cadre's own limit, and in the NATS account.

A stream of a shard cannot be made to refuse writes by its own size (message schedules forbid that), and one
that made room by itself would lose the oldest runs. So the limit of a shard is kept by whoever starts runs.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.protocol.topology import Topology

_KNOWN_FOR = 1.0
"""Seconds that an answer of the server is taken for true."""


class StorageUsage(NamedTuple):
    """In bytes."""

    where: str
    used: int
    limit: int

    @property
    def share(self) -> float:
        return self.used / self.limit


class NatsStorage:
    """Asks the server when somebody wants to know, once a second at most for each shard."""

    def __init__(self, nc: Client, topology: Topology, max_bytes: int) -> None:
        self._nc = nc
        self._topology = topology
        self._max_bytes = max_bytes
        self._asking = asyncio.Lock()
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    async def fullest(self, tree: str) -> StorageUsage | None:
        """Where there is least room for the tree; None when nothing is limited. Raises BusUnavailable."""
        rooms = _of_account(await self._ask("INFO"))
        if self._max_bytes:
            stream = self._topology.stream_of(tree)
            used = (await self._ask(f"STREAM.INFO.{stream}"))["state"]["bytes"]
            rooms.append(StorageUsage(f"stream {stream}", used, self._max_bytes))
        return max(rooms, key=lambda room: room.share, default=None)

    async def _ask(self, what: str) -> dict[str, Any]:
        async with self._asking:
            at, answer = self._known.get(what, (float("-inf"), {}))
            if time.monotonic() - at > _KNOWN_FOR:
                answer = await jetstream.ask(self._nc, "asking how much room there is", what)
                self._known[what] = (time.monotonic(), answer)
        return answer


def _of_account(info: dict[str, Any]) -> list[StorageUsage]:
    """An account has one limit, or one for each number of copies; what is not positive is no limit."""
    tiers = info.get("tiers") or {"": info}
    return [
        StorageUsage(
            f"the NATS account{f' ({name})' if name else ''}", tier["storage"], tier["limits"]["max_storage"]
        )
        for name, tier in tiers.items()
        if tier.get("limits", {}).get("max_storage", -1) > 0
    ]
