"""A queue of a shard that is made when somebody first needs it, for what comes from then on."""

from typing import Any

from cadre.adapters.nats.queues.consumers import ACK_WAIT_SECONDS, ENDLESS, create_consumer
from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable


class LateQueue(Queue):
    """Its durable consumer begins at the end of the stream, and goes when it is removed."""

    most_deliveries = ENDLESS
    rests = 0.5

    async def _ensure_consumer(self) -> None:
        config: dict[str, Any] = {
            "durable_name": self._consumer,
            "filter_subjects": [self._filter],
            "deliver_policy": "new",
            "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT_SECONDS * 1e9),
            "max_deliver": self.most_deliveries,
            "max_ack_pending": 10_000,
            "max_waiting": 4096,
        }
        # Without the filter in the subject: so it is of the form in which a gateway may make consumers.
        await create_consumer(self._nc, self._stream, self._consumer, config)

    async def remove(self) -> None:
        """Removes the consumer, with what it has not delivered. Raises BusUnavailable."""
        answer = await jetstream.api(self._nc, f"CONSUMER.DELETE.{self._stream}.{self._consumer}")
        error = answer.get("error")
        if error is not None and error.get("code") != 404:
            raise BusUnavailable(f"removing consumer {self._consumer}", error.get("description"))
