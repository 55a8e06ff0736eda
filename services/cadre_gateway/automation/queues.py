"""The queues that all gateways share: schedules that are due, and messages that triggers listen to."""

import logging

from cadre.adapters.nats.queues.consumers import ENDLESS
from cadre.adapters.nats.queues.delivery import Handler, NatsDelivery
from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.streams import jetstream
from cadre.errors import RetryableError, UnreadableMessage
from cadre.protocol.topology import Subject, Topology
from cadre.service.platform import Platform
from cadre_gateway.automation.scheduler import Scheduler
from cadre_gateway.automation.trigger_intake import TriggerIntake

log = logging.getLogger("cadre.schedules")

AT_ONCE = 32
"""Messages of a queue that one gateway handles at once."""

_AGAIN_SECONDS = 5.0
"""Before what could not be handled is delivered again."""


class EndlessQueue(Queue):
    """A queue whose messages are delivered until somebody handles them."""

    most_deliveries = ENDLESS


async def start_due_queue(platform: Platform, scheduler: Scheduler) -> Queue:
    """Begins to handle the schedules that are due. Raises SetupError."""

    async def handle(delivery: NatsDelivery) -> None:
        name = delivery.address.leaf
        try:
            await scheduler.handle(name)
        except (RetryableError, UnreadableMessage) as error:
            log.warning("schedule %s is handled again in %g s: %s", name, _AGAIN_SECONDS, error)
            await delivery.nak(_AGAIN_SECONDS)
        else:
            await delivery.ack()

    return await start_queue(platform, Topology.schedules_consumer(), Subject.DUE, handle)


async def start_event_queue(platform: Platform, triggers: TriggerIntake) -> Queue:
    """Begins to start runs for the messages that triggers listen to. Raises SetupError."""
    nc, topology = platform.nc, platform.topology

    async def handle(delivery: NatsDelivery) -> None:
        subject = delivery.subject.removeprefix(topology.events_prefix)
        message = jetstream.message_id(delivery.headers, topology.automation_stream, delivery.seq)
        try:
            refusals = await triggers.on_message(subject, message, delivery.data)
        except RetryableError as error:
            log.warning("event %d is handled again in %g s: %s", delivery.seq, _AGAIN_SECONDS, error)
            await delivery.nak(_AGAIN_SECONDS)
            return
        if refusals:
            await delivery.term("; ".join(refusals))
        else:
            await delivery.ack()
            await jetstream.delete(nc, topology.automation_stream, delivery.seq)

    return await start_queue(platform, Topology.events_consumer(), Subject.EVENT, handle)


async def start_queue(platform: Platform, consumer: str, subject: str, handle: Handler) -> Queue:
    """Begins to handle what comes below the subject, a template of Subject. Raises SetupError."""
    topology = platform.topology
    queue = EndlessQueue(
        platform.nc, topology.automation_stream, consumer, topology.below(subject), handle, limit=AT_ONCE
    )
    await queue.start()
    return queue
