"""Refuses new runs while there is still room for those in flight to come to their end."""

from __future__ import annotations

from cadre.adapters.nats.storage import NatsStorage
from cadre_gateway.requests.problems import full

FULL_AT = 0.9
"""Share of the room beyond which no run is begun; the rest is for the runs that there are."""


class Capacity:
    def __init__(self, room: NatsStorage) -> None:
        self._room = room

    async def admit(self, tree: str) -> None:
        """Raises a `capacity` problem when a new tree had better not begin; BusUnavailable."""
        room = await self._room.fullest(tree)
        if room is not None and room.share >= FULL_AT:
            raise full(
                f"{room.where} holds {room.used:,} of {room.limit:,} bytes: no run is begun over {FULL_AT:.0%}"
            )
