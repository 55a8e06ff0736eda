"""A process of a test team: what it has at work, its way to the streams, and its death at any moment."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import OutcomeUnknown, RetryableError
from cadre.ports import Delivery
from cadre.protocol.topology import Address, Topology
from cadre.testing.in_memory_ports import Silence
from cadre.testing.in_memory_streams import GivenUp, InMemoryConsumer, InMemoryStream, StreamMessage

T = TypeVar("T")

REDELIVER_AFTER_SECONDS = 0.5
ACK_WAIT_SECONDS = 30.0
"""The time after a handler ended at which what it has left unsettled is delivered again."""

Handler = Callable[[Delivery], Awaitable[None]]


class InMemoryProcess:
    """One service's process; it is the `Wire` of its ports.

    `before_store` is called before each record that the process stores, `on_store` behind it; both may kill it there.
    """

    def __init__(
        self,
        name: str,
        on_store: Callable[[InMemoryProcess], None] = lambda process: None,
        before_store: Callable[[InMemoryProcess], None] = lambda process: None,
    ) -> None:
        self.name = name
        self._on_store, self._before_store = on_store, before_store
        self.is_alive = True
        self.at_work: set[asyncio.Task[None]] = set()
        self._queues: list[InMemoryQueue] = []

    async def ask(self, doing: str, operation: Callable[[], T], silence: Silence) -> T:
        await asyncio.sleep(0)
        if silence is OutcomeUnknown:
            self._before_store(self)
        await self._stop_if_dead()
        result = operation()
        if silence is OutcomeUnknown:
            self._on_store(self)
            await self._stop_if_dead()
        return result

    def post(self, operation: Callable[[], object], loss: str) -> None:
        if self.is_alive:
            operation()

    def serve(self, queue: InMemoryQueue) -> None:
        """Take the messages of the queue from now on."""
        self._queues.append(queue)
        queue.consumer.subscribe(queue)

    def kill(self) -> None:
        """End all that it does where it stands; what it holds is delivered to others.

        A tool that runs in a thread goes on there, as no thread can be ended from outside.
        """
        self.is_alive = False
        for task in self.at_work:
            task.cancel()
        for queue in self._queues:
            queue.consumer.leave(queue)

    async def _stop_if_dead(self) -> None:
        if not self.is_alive:
            await asyncio.get_running_loop().create_future()


class InMemoryDelivery:
    """ports.Delivery"""

    retried = False

    def __init__(self, queue: InMemoryQueue, message: StreamMessage, deliveries: int) -> None:
        self._queue, self._message = queue, message
        self.subject, self.data, self.seq = message.subject, message.data, message.seq
        self.origin = message.origin or message.seq
        self.deliveries = deliveries
        self.is_settled = False

    @functools.cached_property
    def address(self) -> Address:
        return Topology.address(self.subject)

    async def ack(self) -> None:
        self._settle(lambda: self._queue.consumer.settle(self.seq))

    async def nak(self, delay: float = 0.0) -> None:
        self._settle(lambda: self._queue.consumer.nak(self.seq, delay))

    async def term(self, reason: str) -> None:
        def give_up() -> None:
            self._queue.consumer.settle(self.seq)
            self._queue.stream.dead.append(GivenUp(self._message, reason))

        self._settle(give_up)

    def _settle(self, operation: Callable[[], object]) -> None:
        self.is_settled = True
        self._queue.process.post(operation, "lost-ack")


class InMemoryQueue:
    """One consumer's messages in a process: a task for each, as many at work as the limiter allows."""

    def __init__(
        self,
        process: InMemoryProcess,
        stream: InMemoryStream,
        consumer: InMemoryConsumer,
        handler: Handler,
        limiter: FairLimiter,
    ) -> None:
        self.process, self.stream, self.consumer = process, stream, consumer
        self._handler, self._limiter = handler, limiter
        self.on_end: Callable[[BaseException | None], None] = lambda error: None
        """Called when a message's handling has ended, with what no handler should raise."""

    def arrive(self, message: StreamMessage, deliveries: int) -> None:
        delivery = InMemoryDelivery(self, message, deliveries)
        task = asyncio.create_task(self._work(delivery), name=f"{self.process.name}: {message.subject}")
        self.process.at_work.add(task)
        task.add_done_callback(self._done)

    async def _work(self, delivery: InMemoryDelivery) -> None:
        try:
            async with self._limiter.acquire(delivery.address.tree):
                await self._handler(delivery)
        except RetryableError:
            await delivery.nak(REDELIVER_AFTER_SECONDS)
        if not delivery.is_settled:
            await delivery.nak(ACK_WAIT_SECONDS)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.process.at_work.discard(task)
        self.on_end(None if task.cancelled() else task.exception())
