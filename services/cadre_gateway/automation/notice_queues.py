"""The queues of notices: what is journaled, read while there is any notice, and the webhooks on their way."""

import asyncio
import logging
from dataclasses import dataclass, field

from cadre.adapters.nats.queues.delivery import NatsDelivery
from cadre.adapters.nats.queues.late_queue import LateQueue
from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.queues.shard_queues import ShardQueues
from cadre.adapters.nats.streams import jetstream
from cadre.automation.notice import NoticeDelivery
from cadre.delivery.codec import decode, unpack_entry
from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import BlobMissing, NewerSchema, RetryableError, UnreadableMessage
from cadre.protocol.addresses.subjects import Subject
from cadre.protocol.topology import Topology
from cadre.service.platform import Platform
from cadre_gateway.automation.notices import DeliveryGivenUp, Notices
from cadre_gateway.automation.queues import Trials, start_queue

log = logging.getLogger("cadre.notices")

_LOOK_SECONDS = 2.0
"""Between two looks whether there is any notice."""

_AGAIN_SECONDS = 5.0
_AT_ONCE = 64


@dataclass(eq=False)
class NoticeQueues:
    """Follows the journals of all shards as long as there are notices; nothing is read for nobody."""

    platform: Platform
    notices: Notices
    trials: Trials
    _journals: ShardQueues[LateQueue] | None = None
    _deliveries: list[Queue] = field(default_factory=list)
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        """Works until cancelled. Raises SetupError."""
        consumer = Topology.deliveries_consumer()
        self._deliveries.append(await start_queue(self.platform, consumer, Subject.DELIVERY, self._deliver))
        while True:
            try:
                await self._follow(await self.notices.is_wanted())
            except RetryableError as error:
                log.warning("notices: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def drain(self, grace: float) -> None:
        """Ends what is in hand within `grace` seconds and hands back the rest."""
        if self._journals is not None:
            await self._journals.drain(grace)
        for queue in self._deliveries:
            await queue.drain(grace)

    async def follow_now(self) -> None:
        """Has what is journaled from now on told, before the next look finds that somebody wants it."""
        await self._follow(True)

    async def _follow(self, wanted: bool) -> None:
        async with self._changing:
            await self._set(wanted)

    async def _set(self, wanted: bool) -> None:
        topology = self.platform.topology
        if wanted and self._journals is None:
            limiter = FairLimiter(_AT_ONCE, queues=topology.shards)
            self._journals = await ShardQueues(
                self.platform.nc,
                self.platform.shards,
                Topology.notices_consumer(),
                topology.journals_of_shard,
                self._on_entry,
                limiter,
                LateQueue,
            ).start()
        elif not wanted and self._journals is not None:
            journals, self._journals = self._journals, None
            await journals.drain(1.0)
            for queue in journals.queues:
                await queue.remove()

    async def _on_entry(self, delivery: NatsDelivery) -> None:
        if Topology.is_fate(delivery.subject):
            await delivery.ack()
            return
        try:
            entry = await unpack_entry(delivery.data, self.platform.blobs)
        except NewerSchema:
            await delivery.nak(_AGAIN_SECONDS)
            return
        except (UnreadableMessage, BlobMissing) as error:
            log.warning("entry %d on %s tells nobody: %s", delivery.seq, delivery.subject, error)
            await delivery.ack()
            return
        if not delivery.imported:
            await self.notices.on_entry(delivery.seq, entry)
        await delivery.ack()

    async def _deliver(self, delivery: NatsDelivery) -> None:
        await self.trials.attempt(delivery, lambda: self._send(delivery), delivery.term)

    async def _send(self, delivery: NatsDelivery) -> None:
        try:
            await self.notices.deliver(decode(delivery.data, NoticeDelivery))
        except (DeliveryGivenUp, UnreadableMessage) as error:
            await delivery.term(str(error))
            return
        except RetryableError as error:
            log.warning("%s is handled again in %g s: %s", delivery.subject, _AGAIN_SECONDS, error)
            await delivery.nak(_AGAIN_SECONDS)
            return
        await delivery.ack()
        await jetstream.delete(self.platform.nc, self.platform.topology.automation_stream, delivery.seq)
