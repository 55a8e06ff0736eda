"""A durable pull consumer, shared by all replicas: one long pull kept open, credit for free slots only."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.queues.consumers import MAX_DELIVER, ensure_consumer
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.fair_slots import Slots
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import RetryableError, SetupError
from cadre.protocol.topology import Address, Topology
from cadre.telemetry.logs import HANDLED_SUBJECT

log = logging.getLogger("cadre.queue")

_SIGN_OF_LIFE = 1.0
_REDELIVER_AFTER = 0.5
_GLANCE = 0.05
_LAST_WORDS = 1.0
_PULL_EXPIRES = 30.0
_PULL_HEARTBEAT = 2.0


class NatsDelivery:
    """One delivery of one message, to be acked, handed back or given up."""

    def __init__(self, nc: Client, message: Msg) -> None:
        self._nc = nc
        self.reply = message.reply
        self.subject = message.subject
        self.data = message.data
        tokens = message.reply.split(".")
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.…, with domain and account hash before when long.
        at = 4 if len(tokens) < 11 else 6
        self.deliveries = int(tokens[at])
        self.seq = int(tokens[at + 1])
        self.retried = jetstream.RETRIED in (message.headers or ())
        self.imported = jetstream.IMPORTED in (message.headers or ())
        self.settled = False
        self.begun = False

    @functools.cached_property
    def address(self) -> Address:
        return Topology.address(self.subject)

    async def ack(self) -> None:
        await self._settle(b"+ACK")

    async def nak(self, delay: float = 0.0) -> None:
        """Hands the message back, to be delivered again after `delay` seconds."""
        await self._settle(b'-NAK {"delay":%d}' % int(delay * 1e9) if delay else b"-NAK")

    async def term(self, reason: str) -> None:
        """Gives the message up: it is never delivered again, and kept as a dead letter with the reason."""
        await self._settle(b"+TERM " + " ".join(reason.split()).encode()[:500])

    async def in_progress(self) -> None:
        await self._nc.publish(self.reply, b"+WPI")

    async def _settle(self, how: bytes) -> None:
        self.settled = True
        await self._nc.publish(self.reply, how)


Handler = Callable[[NatsDelivery], Awaitable[None]]


class Queue:
    """Delivers to `handler`, at most `credit` at once, or as many as the slots that several queues share.

    A few more are held in hand, so that trees take turns. A handler that raises has its message redelivered.
    """

    most_deliveries = MAX_DELIVER
    """After which the server itself gives a message up, as a dead letter; -1: never."""

    rests = 0.0
    """Seconds without a pull, once nothing more waits. The server writes down what was delivered and acked, and syncs
    that: who is in no hurry spares it most of the work by coming for many at once. 0: a pull is always open."""

    _rests_until = 0.0

    def __init__(
        self, nc: Client, stream: str, consumer: str, subject: str, handler: Handler, *, credit: int | Slots
    ) -> None:
        self._nc = nc
        self._stream = stream
        self._consumer = consumer
        self._filter = subject
        self._handler = handler
        self._slots = credit if isinstance(credit, Slots) else Slots(credit)
        self._pulls: dict[str, _Pull] = {}
        self._pull_count = 0
        self._working: dict[int, tuple[NatsDelivery, asyncio.Task[None]]] = {}
        self._repulling: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._mending: asyncio.Task[None] | None = None
        self._doubtful = False
        """Something went wrong with a pull: the consumer itself may be gone."""
        self._reconnects = 0
        self._stopping = False
        self._inbox = ""
        self.redelivered = 0
        """Messages that this process got and some process had got before."""

    async def start(self) -> None:
        """Creates the consumer if absent, however long that takes, and begins to pull. Raises SetupError."""
        await retry(self._ensure_consumer, pauses=EVERY_SECOND, log=log)
        self._reconnects = self._nc.stats["reconnects"]
        await self._listen()
        await self._pull()
        self._ticker = asyncio.create_task(self._tick(), name=f"queue {self._consumer}")

    @property
    def consumer(self) -> str:
        return self._consumer

    @property
    def in_flight(self) -> int:
        return len(self._working)

    async def drain(self, grace: float) -> None:
        """Stops pulling, lets work in flight end within `grace` seconds, hands the rest back."""
        self._stopping = True
        if self._subscription is not None and self._nc.is_connected:
            # Ends the open pull: what the server had on its way to us comes back after the ack wait.
            await self._subscription.unsubscribe()
        await self._put_down([pair for pair in self._working.values() if not pair[0].begun])
        if tasks := [task for _, task in self._working.values()]:
            await asyncio.wait(tasks, timeout=grace)
        await self._put_down(list(self._working.values()))
        for helper in (self._ticker, self._mending, self._repulling):
            if helper is not None:
                helper.cancel()

    async def _put_down(self, work: list[tuple[NatsDelivery, asyncio.Task[None]]]) -> None:
        """Ends the handling of these messages, and then lets another replica have them."""
        if not work:
            return
        for _, task in work:
            task.cancel()
        await asyncio.wait([task for _, task in work], timeout=_LAST_WORDS)
        for delivery, _ in work:
            await self._hand_back(delivery, 0.0)

    async def _ensure_consumer(self) -> None:
        await ensure_consumer(self._nc, self._stream, self._consumer, self._filter, self.most_deliveries)

    # --- pulling

    async def _listen(self) -> None:
        """On a new inbox: nobody serves the pulls that were made with the former one any more."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
        self._pulls.clear()
        self._inbox = self._nc.new_inbox()
        self._subscription = await self._nc.subscribe(f"{self._inbox}.*", cb=self._on_message)

    async def _pull(self) -> None:
        want = self._wanted()
        if not want or time.monotonic() < self._rests_until:
            return
        self._pull_count += 1
        token = str(self._pull_count)
        self._pulls[token] = _Pull(want)
        if self.rests:
            request = b'{"batch":%d,"expires":%d}' % (want, int(_GLANCE * 1e9))
        else:
            request = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (
                want,
                int(_PULL_EXPIRES * 1e9),
                int(_PULL_HEARTBEAT * 1e9),
            )
        try:
            await self._nc.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
                request,
                reply=f"{self._inbox}.{token}",
            )
        except nats.errors.Error as error:
            self._pulls.pop(token, None)
            log.debug("pull not sent: %s", error)

    def _wanted(self) -> int:
        """As many messages as there is room for, once half of this queue's share of it is free."""
        if self._stopping:
            return 0
        promised = sum(pull.left for pull in self._pulls.values())
        want = min(self._slots.share, self._slots.room) - promised
        if want >= max(1, self._slots.share // 2):
            return want
        if not promised:
            self._slots.when_room(self._pull_soon)
        return 0

    def _pull_soon(self) -> None:
        if self._wanted() and (self._repulling is None or self._repulling.done()):
            self._repulling = asyncio.create_task(self._pull(), name=f"pull {self._consumer}")

    async def _on_message(self, message: Msg) -> None:
        if not message.reply.startswith("$JS.ACK"):
            await self._on_status(message)
            return
        # The server serves pulls in the order they came: the oldest one pays for this message.
        for token, pull in self._pulls.items():
            pull.heard = time.monotonic()
            pull.left -= 1
            if pull.left <= 0:
                del self._pulls[token]
            break
        self._take(NatsDelivery(self._nc, message), self._handler)
        await self._pull()

    def adopt(self, delivery: NatsDelivery, handler: Handler) -> bool:
        """Has it handled, and settled, in the place of the process that it was delivered to; False: not any more."""
        if not self._stopping:
            self._take(delivery, handler)
        return not self._stopping

    def _take(self, delivery: NatsDelivery, handler: Handler) -> None:
        if delivery.seq in self._working:
            # Our own sign of life came too late; the first handler is still at it and will ack for both.
            log.debug("%s delivered again while in work", delivery.subject)
            return
        task = asyncio.create_task(self._work(delivery, handler), name=delivery.subject)
        self._working[delivery.seq] = (delivery, task)
        self._slots.hold()
        task.add_done_callback(lambda _: self._let_go(delivery))

    async def _on_status(self, message: Msg) -> None:
        token = message.subject.rpartition(".")[2]
        status = (message.headers or {}).get("Status", "")
        pull = self._pulls.get(token)
        if pull is None:
            return
        if status == "100":
            pull.heard = time.monotonic()
            return
        del self._pulls[token]
        if status in ("404", "408"):
            self._rests_until = time.monotonic() + self.rests
            await self._pull()
        else:
            # No leader, a new leader, no such consumer: left to the next tick, which is no busy loop.
            self._doubtful = True

    async def _work(self, delivery: NatsDelivery, handler: Handler) -> None:
        try:
            HANDLED_SUBJECT.set(delivery.subject)
            self.redelivered += delivery.deliveries > 1
            async with self._slots.turn(delivery.address.tree):
                delivery.begun = True
                await handler(delivery)
        except RetryableError as error:
            log.warning("%s comes again: %s", delivery.subject, error)
            await self._hand_back(delivery, _REDELIVER_AFTER)
        except Exception as error:
            # The one place that must survive whatever a handler does: the record stays, and comes again.
            log.exception("handling %s failed: %s", delivery.subject, error)
            await self._hand_back(delivery, _REDELIVER_AFTER)

    def _let_go(self, delivery: NatsDelivery) -> None:
        del self._working[delivery.seq]
        self._slots.let_go()
        self._pull_soon()

    async def _hand_back(self, delivery: NatsDelivery, delay: float) -> None:
        if not delivery.settled and not self._nc.is_closed:
            await delivery.nak(delay)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_SIGN_OF_LIFE)
            try:
                await self._signs_of_life()
                if not self._stopping:
                    await self._keep_pulling()
            except nats.errors.Error as error:
                log.warning("queue %s: %s", self._consumer, error)

    async def _signs_of_life(self) -> None:
        for delivery, _ in list(self._working.values()):
            if not delivery.settled:
                await delivery.in_progress()

    async def _keep_pulling(self) -> None:
        silent = time.monotonic() - 2 * _PULL_HEARTBEAT - 1
        for token, pull in list(self._pulls.items()):
            if pull.heard < silent:
                # The server restarted or forgot the pull, perhaps the consumer too.
                del self._pulls[token]
                self._doubtful = True
        if not self._nc.is_connected:
            return
        before, self._reconnects = self._reconnects, self._nc.stats["reconnects"]
        if before != self._reconnects:
            self._doubtful = True
            await self._listen()
        if self._doubtful and (self._mending is None or self._mending.done()):
            # Beside the signs of life, which must go on however long this takes.
            self._mending = asyncio.create_task(self._mend(), name=f"consumer {self._consumer}")
        await self._pull()

    async def _mend(self) -> None:
        try:
            await self._ensure_consumer()
            self._doubtful = False
        except (RetryableError, SetupError) as error:
            log.warning("queue %s: %s", self._consumer, error)


class _Pull:
    def __init__(self, left: int) -> None:
        self.left = left
        self.heard = time.monotonic()
