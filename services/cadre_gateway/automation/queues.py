"""The queues that all gateways share: schedules that are due, and messages that triggers listen to."""

import logging
from collections.abc import Awaitable, Callable

from cadre.adapters.nats.automations import GIVEN_UP, GivenUpTick
from cadre.adapters.nats.dead_letters import AutomationQuarantine
from cadre.adapters.nats.queues.consumers import ENDLESS
from cadre.adapters.nats.queues.queue import Handler, NatsDelivery, Queue
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import decode
from cadre.delivery.quarantine import Quarantine
from cadre.errors import RetryableError, UnreadableMessage
from cadre.protocol.topology import Subject, Topology
from cadre.service.platform import Platform
from cadre_gateway.automation.evaluator import MAX_TRIES, EvaluationEnded
from cadre_gateway.automation.scheduler import Scheduler
from cadre_gateway.automation.trigger_intake import TriggerIntake

log = logging.getLogger("cadre.schedules")

AT_ONCE = 32
"""Messages of a queue that one gateway handles at once."""

_AGAIN_SECONDS = 5.0
"""Before what could not be handled is delivered again."""


class EndlessQueue(Queue):
    """A queue that delivers a message until it is handled, or until it is found to end each process that handles it."""

    most_deliveries = ENDLESS


class Trials:
    """Handles the messages of the queues, and finds those that end the gateways which handle them."""

    def __init__(self, platform: Platform) -> None:
        self._store = AutomationQuarantine(platform.nc, platform.topology)
        self._quarantine = Quarantine(self._store, platform.clock)

    async def attempt(
        self,
        delivery: NatsDelivery,
        handle: Callable[[], Awaitable[None]],
        give_up: Callable[[str], Awaitable[None]],
    ) -> None:
        """Handle a delivery, or give it up where it is poison or its evaluation has ended too often. Raises
        what `handle` raises."""
        try:
            why = await self._quarantine.attempt(delivery, handle)
        except EvaluationEnded as error:
            if delivery.deliveries < MAX_TRIES:
                log.warning("%s is handled again in %g s: %s", delivery.subject, _AGAIN_SECONDS, error)
                await delivery.nak(_AGAIN_SECONDS)
                return
            why = str(error)
        if why is not None:
            log.error("%s is given up: %s", delivery.subject, why)
            await give_up(why)
            await self._quarantine.forget(delivery)


async def start_due_queue(platform: Platform, scheduler: Scheduler, trials: Trials) -> Queue:
    """Begin to handle the schedules that are due. Raises SetupError."""

    async def handle(delivery: NatsDelivery) -> None:
        name = delivery.address.leaf
        if delivery.retried:
            await trials.attempt(delivery, lambda: try_again(delivery), lambda why: give_up(delivery, why))
        elif why := delivery.headers.get(GIVEN_UP):
            await delivery.term(f"schedule {name}: {why}")
        else:
            await trials.attempt(delivery, lambda: go_on(delivery), lambda why: give_up(delivery, why))

    async def go_on(delivery: NatsDelivery, giving_up: str = "") -> None:
        name = delivery.address.leaf
        try:
            await scheduler.handle(name, giving_up)
        except (RetryableError, UnreadableMessage) as error:
            log.warning("schedule %s is handled again in %g s: %s", name, _AGAIN_SECONDS, error)
            await delivery.nak(_AGAIN_SECONDS)
        else:
            await delivery.ack()

    async def try_again(delivery: NatsDelivery) -> None:
        try:
            wanted = decode(delivery.data, GivenUpTick)
        except UnreadableMessage as error:
            await delivery.term(str(error))
            return
        if await scheduler.try_again(wanted.schedule, wanted.tick):
            await delivery.ack()
            await jetstream.delete(platform.nc, platform.topology.automation_stream, delivery.seq)
        else:
            await delivery.term(f"schedule {wanted.schedule}: knows of no such tick that failed")

    async def give_up(delivery: NatsDelivery, why: str) -> None:
        await go_on(delivery, why)

    return await start_queue(platform, Topology.schedules_consumer(), Subject.DUE, handle)


async def start_event_queue(platform: Platform, triggers: TriggerIntake, trials: Trials) -> Queue:
    """Begin to start runs for the messages that triggers listen to. Raises SetupError."""
    nc, topology = platform.nc, platform.topology

    async def handle(delivery: NatsDelivery) -> None:
        await trials.attempt(delivery, lambda: take(delivery), delivery.term)

    async def take(delivery: NatsDelivery) -> None:
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
    """Begin to handle what comes below the subject, a template of Subject. Raises SetupError."""
    topology = platform.topology
    queue = EndlessQueue(
        platform.nc, topology.automation_stream, consumer, topology.below(subject), handle, limit=AT_ONCE
    )
    await queue.start()
    return queue
