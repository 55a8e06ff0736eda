"""Refuses new runs while there is still room for the active ones to come to their end."""

from cadre.adapters.nats.storage import NatsStorage
from cadre_gateway.requests.problems import full

MAX_FILL_SHARE = 0.9
"""No run begins beyond this share of the storage; the rest is for the active runs."""


class Capacity:
    """Watches how full the storage is."""

    def __init__(self, storage: NatsStorage) -> None:
        self._storage = storage

    async def admit(self, tree: str) -> None:
        """Raises a 429 problem when a new tree must not begin, BusUnavailable."""
        usage = await self._storage.fullest(tree)
        if usage is not None and usage.share >= MAX_FILL_SHARE:
            raise full(
                f"{usage.where} holds {usage.used:,} of {usage.limit:,} bytes:"
                f" no run is begun over {MAX_FILL_SHARE:.0%}"
            )
