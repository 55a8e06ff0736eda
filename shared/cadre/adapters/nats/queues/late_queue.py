"""A queue of a shard that is made when somebody first needs it, for what comes from then on."""

from cadre.adapters.nats.queues.consumers import ENDLESS, create_consumer, queue_config
from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.streams import jetstream
from cadre.errors import BusUnavailable


class LateQueue(Queue):
    """Its durable consumer begins at the end of the stream, and goes when it is removed."""

    most_deliveries = ENDLESS
    rests = 0.5

    async def _ensure_consumer(self) -> None:
        config = queue_config(self._consumer, self._filter, self.most_deliveries)
        config |= {"deliver_policy": "new", "filter_subjects": [config.pop("filter_subject")]}
        # Without the filter in the subject: so it is of the form in which a gateway may make consumers.
        await create_consumer(self._nc, self._stream, self._consumer, config)

    async def remove(self) -> None:
        """Removes the consumer, with what it has not delivered. Raises BusUnavailable."""
        answer = await jetstream.api(self._nc, f"CONSUMER.DELETE.{self._stream}.{self._consumer}")
        error = answer.get("error")
        if error is not None and error.get("code") != 404:
            raise BusUnavailable(f"removing consumer {self._consumer}", error.get("description"))
