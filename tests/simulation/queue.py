"""A replica's end of a durable consumer: signs of life, handing back. As cadre.adapters.nats.queues.queue does it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import RetryableError
from cadre.ports import Delivery
from cadre.protocol.topology import Address, Topology
from simulation.consumer import Consumer
from simulation.loop import Loop, Process
from simulation.model import Defect
from simulation.server import Message
from simulation.wire import Wire

SIGN_OF_LIFE = 1.0
REDELIVER_AFTER = 0.5

Handler = Callable[[Delivery], Awaitable[None]]


class SimDelivery:
    """ports.Delivery"""

    def __init__(self, wire: Wire, consumer: Consumer, message: Message, deliveries: int) -> None:
        self._wire, self._consumer, self._message = wire, consumer, message
        self.subject, self.data, self.seq = message.subject, message.data, message.seq
        self.deliveries = deliveries
        self.origin = message.origin or message.seq
        self.retried = message.retried
        self.settled = False

    @functools.cached_property
    def address(self) -> Address:
        return Topology.address(self.subject)

    def in_hands_of(self, wire: Wire) -> SimDelivery:
        """The same delivery, for another process to settle."""
        return SimDelivery(wire, self._consumer, self._message, self.deliveries)

    async def ack(self) -> None:
        self.settled = True
        self._wire.post(lambda: self._consumer.ack(self.seq), "lost-ack")

    async def nak(self, delay: float = 0.0) -> None:
        self.settled = True
        self._wire.post(lambda: self._consumer.nak(self.seq, delay), "lost-ack")

    async def term(self, reason: str) -> None:
        self.settled = True
        self._wire.post(lambda: self._consumer.term(self.seq), "lost-ack")

    def in_progress(self) -> None:
        self._wire.post(lambda: self._consumer.in_progress(self.seq), "lost-ack")


class SimQueue:
    """consumer.Subscriber: a task per delivery, each in its turn. The queues of a process share its limiter."""

    def __init__(self, loop: Loop, wire: Wire, consumer: Consumer, handler: Handler, limiter: FairLimiter) -> None:
        self.process: Process = wire.process
        self._loop, self._wire, self._consumer, self._handler = loop, wire, consumer, handler
        self._limiter = limiter
        self._promised = 0
        self.working: dict[int, tuple[SimDelivery, asyncio.Task[None]]] = {}
        self._ticking = self._stopping = False

    # --- what the server knows of it

    @property
    def room(self) -> int:
        return min(self._limiter.queue_share, self._limiter.room) - self._promised

    def wait_for_room(self) -> None:
        """Ask again once the other queues of the process leave room."""
        if self._limiter.room <= 0:
            self._limiter.when_room(self._pull)

    def promise(self) -> None:
        """A message is on its way."""
        self._promised += 1

    def lost(self) -> None:
        """It will not arrive; the pull that asked for it has ended."""
        self._promised -= 1
        self._consumer.dispatch()

    # --- in the process

    def start(self) -> None:
        self._consumer.subscribers.append(self)
        self._ask_for_more()

    def leave(self) -> None:
        if self in self._consumer.subscribers:
            self._consumer.subscribers.remove(self)

    def arrive(self, message: Message, deliveries: int) -> None:
        self._promised -= 1
        self._take(SimDelivery(self._wire, self._consumer, message, deliveries), self._handler)

    def adopt(self, delivery: SimDelivery, handler: Handler) -> bool:
        """Has it handled in the place of the process that it was delivered to; False: not any more."""
        if not self._stopping:
            self._take(delivery, handler)
        return not self._stopping

    def _take(self, delivery: SimDelivery, handler: Handler) -> None:
        if delivery.seq in self.working:
            self._ask_for_more()  # the first handler is still at it and will settle for both
            return
        task = self._loop.create_task(self._work(delivery, handler))
        self.working[delivery.seq] = (delivery, task)
        self._limiter.add_in_hand()
        task.add_done_callback(lambda _: self._let_go(delivery))
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(SIGN_OF_LIFE, self._tick)

    async def drain(self, grace: float) -> None:
        """Takes no more; what is not done within `grace` seconds is handed back."""
        self._stopping = True
        self.leave()
        if tasks := [task for _, task in self.working.values()]:
            await asyncio.wait(tasks, timeout=grace)
        for delivery, task in list(self.working.values()):
            task.cancel()
            if not delivery.settled:
                await delivery.nak()

    def at_work(self) -> list[int]:
        return [seq for seq, (delivery, _) in self.working.items() if not delivery.settled]

    async def _work(self, delivery: SimDelivery, handler: Handler) -> None:
        try:
            async with self._limiter.acquire(delivery.address.tree):
                await handler(delivery)
        except (RetryableError, Defect):
            if not delivery.settled:
                await delivery.nak(REDELIVER_AFTER)
        except Exception as error:
            # The real queue hands the record back and lives; here it is something to look at.
            self._loop.fail(error)

    def _let_go(self, delivery: SimDelivery) -> None:
        self.working.pop(delivery.seq, None)
        self._limiter.remove_in_hand()
        self._ask_for_more()

    def _ask_for_more(self) -> None:
        self._limiter.when_room(self._pull)
        self._loop.at(0.0, self._consumer.dispatch)

    def _pull(self) -> None:
        self._loop.at(0.0, self._consumer.dispatch)

    def _tick(self) -> None:
        for delivery, _ in self.working.values():
            if not delivery.settled:
                delivery.in_progress()
        self._ticking = bool(self.working)
        if self._ticking:
            self._loop.call_later(SIGN_OF_LIFE, self._tick)
