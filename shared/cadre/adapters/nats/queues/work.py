"""The deliveries that one queue of a process has in hand: handled in turn, kept alive, settled or handed back."""

import asyncio
import logging
from collections.abc import Callable

from nats.aio.client import Client

from cadre.adapters.nats.queues.delivery import Handler, NatsDelivery
from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import RetryableError
from cadre.telemetry.logs import HANDLED_SUBJECT

log = logging.getLogger("cadre.queue")

_REDELIVER_AFTER_SECONDS = 0.5
_CANCEL_SECONDS = 1.0
"""For a handler to end once it is cancelled."""


class Work:
    """Handles each delivery in a task of its own, when the limiter has a place and its tree's turn has come.

    `freed` is called whenever one is done with.
    """

    def __init__(self, nc: Client, limiter: FairLimiter, freed: Callable[[], None]) -> None:
        self._nc = nc
        self._limiter = limiter
        self._freed = freed
        self._tasks: dict[int, tuple[NatsDelivery, asyncio.Task[None]]] = {}
        self.redelivered = 0
        """Messages that this process got and some process had got before."""

    def __len__(self) -> int:
        return len(self._tasks)

    def take(self, delivery: NatsDelivery, handler: Handler) -> None:
        """Has the delivery handled. When the handler raises, the message is delivered again."""
        if delivery.seq in self._tasks:
            # Our own sign of life came too late; the first handler is still at it and will ack for both.
            log.debug("%s delivered again while in work", delivery.subject)
            return
        task = asyncio.create_task(self._handle(delivery, handler), name=delivery.subject)
        self._tasks[delivery.seq] = (delivery, task)
        self._limiter.add_in_hand()
        task.add_done_callback(lambda _: self._done(delivery))

    async def signs_of_life(self) -> None:
        """Tells the server that whatever is not settled is still being handled."""
        for delivery, _ in list(self._tasks.values()):
            if not delivery.settled:
                await delivery.in_progress()

    async def drain(self, grace: float) -> None:
        """Lets the handlers that have begun end within `grace` seconds, and hands all else back."""
        await self._hand_back([pair for pair in self._tasks.values() if not pair[0].begun])
        if tasks := [task for _, task in self._tasks.values()]:
            await asyncio.wait(tasks, timeout=grace)
        await self._hand_back(list(self._tasks.values()))

    async def _hand_back(self, work: list[tuple[NatsDelivery, asyncio.Task[None]]]) -> None:
        """Ends the handling of these messages, and then lets another replica have them."""
        if not work:
            return
        for _, task in work:
            task.cancel()
        await asyncio.wait([task for _, task in work], timeout=_CANCEL_SECONDS)
        for delivery, _ in work:
            await self._nak(delivery, 0.0)

    async def _handle(self, delivery: NatsDelivery, handler: Handler) -> None:
        try:
            HANDLED_SUBJECT.set(delivery.subject)
            self.redelivered += delivery.deliveries > 1
            async with self._limiter.acquire(delivery.address.tree):
                delivery.begun = True
                await handler(delivery)
        except RetryableError as error:
            log.warning("%s comes again: %s", delivery.subject, error)
            await self._nak(delivery, _REDELIVER_AFTER_SECONDS)
        except Exception as error:
            # The one place that must survive whatever a handler does: the record stays, and comes again.
            log.exception("handling %s failed: %s", delivery.subject, error)
            await self._nak(delivery, _REDELIVER_AFTER_SECONDS)

    async def _nak(self, delivery: NatsDelivery, delay: float) -> None:
        if not delivery.settled and not self._nc.is_closed:
            await delivery.nak(delay)

    def _done(self, delivery: NatsDelivery) -> None:
        del self._tasks[delivery.seq]
        self._limiter.remove_in_hand()
        self._freed()
