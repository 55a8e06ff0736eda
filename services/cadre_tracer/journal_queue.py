"""The tracer's consumer on one shard: in no hurry while it follows the journals, and quick to reach their end."""

from typing import Any

from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.streams import jetstream


class JournalQueue(Queue):
    """Entries of journals: none of them is ever a dead letter, which somebody might send into its journal again."""

    most_deliveries = -1
    rests = 0.9

    async def hurry(self) -> int:
        """Comes for more without a rest from now on; returns the sequence at which the stream ends at the moment.
        Raises BusUnavailable."""
        self.rests = self._rests_until = 0.0
        await self._pull()
        end: int = (await self._ask(f"STREAM.INFO.{self._stream}"))["state"]["last_seq"]
        return end

    async def has_acked(self, end: int) -> bool:
        """Whether all entries up to this sequence are acked, by whichever tracer. Raises BusUnavailable."""
        told = await self._ask(f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        floor: int = told["ack_floor"]["stream_seq"]
        # What stands behind the last entry is no tracer's matter, and never acked.
        return floor >= end or not told["num_pending"] + told["num_ack_pending"]

    async def _ask(self, what: str) -> dict[str, Any]:
        return await jetstream.ask(self._nc, f"asking for {self._stream}", what)
