"""The queue of schedules that are due, which all gateways share."""

import logging

from cadre.adapters.nats.queues.consumers import ENDLESS
from cadre.adapters.nats.queues.delivery import NatsDelivery
from cadre.adapters.nats.queues.queue import Queue
from cadre.errors import RetryableError, UnreadableMessage
from cadre.protocol.topology import Subject, Topology
from cadre.service.frame import Platform
from cadre_gateway.automation.scheduler import Scheduler

log = logging.getLogger("cadre.schedules")

AT_ONCE = 32
"""Schedules that one gateway handles at once."""

_AGAIN_SECONDS = 5.0
"""Before what could not be handled is delivered again."""


class EndlessQueue(Queue):
    """A queue whose messages are delivered until somebody handles them."""

    most_deliveries = ENDLESS


async def start_due_queue(platform: Platform, scheduler: Scheduler) -> Queue:
    """Begins to handle the schedules that are due. Raises SetupError."""
    topology = platform.topology

    async def handle(delivery: NatsDelivery) -> None:
        name = delivery.address.leaf
        try:
            await scheduler.handle(name)
        except (RetryableError, UnreadableMessage) as error:
            log.warning("schedule %s is handled again in %g s: %s", name, _AGAIN_SECONDS, error)
            await delivery.nak(_AGAIN_SECONDS)
        else:
            await delivery.ack()

    queue = EndlessQueue(
        platform.nc,
        topology.automation_stream,
        Topology.schedules_consumer(),
        topology.below(Subject.DUE),
        handle,
        limit=AT_ONCE,
    )
    await queue.start()
    return queue
