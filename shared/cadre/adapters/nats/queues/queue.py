"""A durable pull consumer, shared by all replicas: a long pull stays open, for as many messages as there is room."""

import asyncio
import logging
import time

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.connection.silence import silence_of
from cadre.adapters.nats.queues.consumers import MAX_DELIVER, ensure_consumer
from cadre.adapters.nats.queues.delivery import Handler, NatsDelivery
from cadre.adapters.nats.queues.pulls import Pulls
from cadre.adapters.nats.queues.work import Work
from cadre.delivery.fair_limiter import FairLimiter
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import RetryableError, SetupError

log = logging.getLogger("cadre.queue")

_TICK_SECONDS = 1.0
"""Between two signs of life of what is at work, and two looks after the pulls."""

_MEND_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds between two tries to find a consumer whose stream is gone: until somebody does something about it."""

_SHORT_PULL_SECONDS = 0.05
_PULL_SECONDS = 10.0
"""Seconds that a pull stays open. A server that takes no pulls any more is noticed once the last one has ended."""

_HEARTBEAT_SECONDS = 2.0


class Queue:
    """Delivers to `handler`, at most `limit` at once, or as the limiter allows that several queues share.

    A few more are held in hand, so that trees take turns. A handler that raises has its message redelivered.
    """

    most_deliveries = MAX_DELIVER
    """After which the server itself gives a message up, as a dead letter; -1: never."""
    rests = 0.0
    """Seconds without a pull, once nothing more waits. The server writes down what was delivered and acked, and syncs
    that: a process that is in no hurry spares it most of the work by coming for many at once. 0: a pull is always
    open."""
    _rests_until = 0.0

    def __init__(
        self,
        nc: NatsClient,
        stream: str,
        consumer: str,
        subject: str,
        handler: Handler,
        *,
        limit: int | FairLimiter,
    ) -> None:
        self._nc = nc
        self._stream = stream
        self._consumer = consumer
        self._filter = subject
        self._handler = handler
        self._limiter = limit if isinstance(limit, FairLimiter) else FairLimiter(limit)
        self._work = Work(nc, self._limiter, self._pull_soon)
        self._pulls = Pulls()
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_doubtful = False
        """Something went wrong with a pull: the consumer itself may be gone."""
        self._mend_tries = 0
        self._mend_at = 0.0
        self._reconnects = 0
        self._is_stopping = False

    @property
    def consumer(self) -> str:
        """The durable consumer's name."""
        return self._consumer

    def silent_for(self) -> float:
        """Return the seconds for which the server has given no sign of life on its pulls, though it owes some."""
        return self._pulls.silent_for() if self._nc.is_connected else 0.0

    @property
    def in_flight(self) -> int:
        """Deliveries in hand."""
        return len(self._work)

    @property
    def redelivered(self) -> int:
        """Messages that this process got and some process had got before."""
        return self._work.redelivered

    async def start(self) -> None:
        """Creates the consumer if absent, however long that takes, and begins to pull. Raises SetupError."""
        await retry(self._ensure_consumer, pauses=EVERY_SECOND, log=log)
        self._reconnects = self._nc.stats["reconnects"]
        await self._listen()
        await self._pull()
        silence_of(self._nc).follow(self)
        self._tasks["queue"] = asyncio.create_task(self._tick(), name=f"queue {self._consumer}")

    async def drain(self, grace: float) -> None:
        """Stops pulling, lets work in flight end within `grace` seconds, hands the rest back."""
        self._is_stopping = True
        silence_of(self._nc).leave(self)
        if self._subscription is not None and self._nc.is_connected:
            # Ends the open pull: what the server had on its way to us comes back after the ack wait.
            await self._subscription.unsubscribe()
        await self._work.drain(grace)
        for task in self._tasks.values():
            task.cancel()

    def adopt(self, delivery: NatsDelivery, handler: Handler) -> bool:
        """Handles and settles a delivery in the place of the process that it was delivered to; returns False when it
        takes no more."""
        if not self._is_stopping:
            self._work.take(delivery, handler)
        return not self._is_stopping

    async def _ensure_consumer(self) -> None:
        await ensure_consumer(self._nc, self._stream, self._consumer, self._filter, self.most_deliveries)

    # --- pulling

    async def _listen(self) -> None:
        """Subscribes to a new inbox: nobody serves the pulls that were made with the former one any more."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
        self._pulls.clear()
        self._inbox = self._nc.new_inbox()
        self._subscription = await self._nc.listen(f"{self._inbox}.*", self._on_message)

    async def _pull(self) -> None:
        want = self._wanted()
        if not want or time.monotonic() < self._rests_until:
            return
        token = self._pulls.open(want)
        if self.rests:
            request = b'{"batch":%d,"expires":%d}' % (want, int(_SHORT_PULL_SECONDS * 1e9))
        else:
            request = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (
                want,
                int(_PULL_SECONDS * 1e9),
                int(_HEARTBEAT_SECONDS * 1e9),
            )
        try:
            await self._nc.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                request,
                reply=f"{self._inbox}.{token}",
            )
        except nats.errors.Error as error:
            self._pulls.close(token)
            log.debug("pull not sent: %s", error)

    def _wanted(self) -> int:
        """How many messages to ask for: as many as there is room for, once half of this queue's share is free."""
        if self._is_stopping:
            return 0
        promised = self._pulls.promised
        want = min(self._limiter.queue_share, self._limiter.room) - promised
        if want >= max(1, self._limiter.queue_share // 2):
            return want
        if not promised:
            self._limiter.when_room(self._pull_soon)
        return 0

    def _pull_soon(self) -> None:
        if self._wanted() and self._is_idle("pull"):
            self._tasks["pull"] = asyncio.create_task(self._pull(), name=f"pull {self._consumer}")

    def _on_message(self, message: Msg) -> None:
        if not message.reply.startswith("$JS.ACK"):
            self._on_status(message)
            return
        self._pulls.pay()
        self._work.take(NatsDelivery(self._nc, message), self._handler)
        self._pull_soon()

    def _on_status(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        status = (message.headers or {}).get("Status", "")
        if status == "100":
            self._pulls.hear(token)
        elif self._pulls.close(token):
            if status in ("404", "408"):
                self._rests_until = time.monotonic() + self.rests
                self._pull_soon()
            else:
                # No leader, a new leader, no such consumer: left to the next tick, which is no busy loop.
                self._is_doubtful = True

    # --- looking after the pulls and the consumer

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                await self._work.signs_of_life()
                if not self._is_stopping:
                    await self._keep_pulling()
            except nats.errors.Error as error:
                log.warning("queue %s: %s", self._consumer, error)

    async def _keep_pulling(self) -> None:
        if self._pulls.close_silent(2 * _HEARTBEAT_SECONDS + 1):
            # The server restarted or forgot the pull, perhaps the consumer too.
            self._is_doubtful = True
        if not self._nc.is_connected:
            return
        before, self._reconnects = self._reconnects, self._nc.stats["reconnects"]
        if before != self._reconnects:
            self._is_doubtful = True
            self._mend_tries, self._mend_at = 0, 0.0
            await self._listen()
        if self._is_doubtful and self._is_idle("mend") and time.monotonic() >= self._mend_at:
            # Beside the signs of life, which must go on however long this takes.
            self._tasks["mend"] = asyncio.create_task(self._mend(), name=f"consumer {self._consumer}")
        await self._pull()

    async def _mend(self) -> None:
        try:
            await self._ensure_consumer()
            self._is_doubtful, self._mend_tries = False, 0
        except RetryableError as error:
            log.warning("queue %s: %s", self._consumer, error)
        except SetupError as error:
            pause = _MEND_PAUSES[min(self._mend_tries, len(_MEND_PAUSES) - 1)]
            self._mend_tries, self._mend_at = self._mend_tries + 1, time.monotonic() + pause
            log.warning("queue %s: %s; trying again in %g s", self._consumer, error, pause)

    def _is_idle(self, task: str) -> bool:
        return task not in self._tasks or self._tasks[task].done()
