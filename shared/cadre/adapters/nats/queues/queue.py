"""Take messages from a durable pull consumer that all replicas share.

A long pull stays open for as many messages as there is room. Messages are handled in turn, kept alive, and acked or
handed back.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.connection.silence import silence_of
from cadre.adapters.nats.queues.consumers import (
    ENDLESS,
    MAX_DELIVER,
    create_consumer,
    ensure_consumer,
    queue_config,
)
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.shard_watch import ShardWatch
from cadre.delivery.fair_limiter import FairLimiter
from cadre.delivery.retry import once_set_up
from cadre.errors import BusUnavailable, RetryableError, SetupError
from cadre.protocol.topology import Topology
from cadre.telemetry.logs import HANDLED_SUBJECT


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
        self.address = Topology.address(self.subject)
        """The message's address, parsed from its subject."""
        self.deliveries = int(tokens[at])
        self.seq = int(tokens[at + 1])
        self.headers: dict[str, str] = dict(message.headers or {})
        self.origin = int(self.headers.get(jetstream.PASSED_ON, self.seq))
        """The first sequence of the message, if it was passed on."""
        self.retried = jetstream.RETRIED in (message.headers or ())
        self.imported = jetstream.IMPORTED in (message.headers or ())
        self.settled = False
        self.begun = False
        """Its turn has come: a handler is at it."""

    async def ack(self) -> None:
        """Say that the message is done with."""
        await self._settle(b"+ACK")

    async def nak(self, delay: float = 0.0) -> None:
        """Hand the message back, to be delivered again after `delay` seconds."""
        await self._settle(b'-NAK {"delay":%d}' % int(delay * 1e9) if delay else b"-NAK")

    async def term(self, reason: str) -> None:
        """Give the message up: it is never delivered again, and kept as a dead letter with the reason."""
        await self._settle(b"+TERM " + " ".join(reason.split()).encode()[:500])

    async def in_progress(self) -> None:
        """Give a sign of life: without one the message goes to another replica after the ack wait."""
        await self._nc.publish(self.reply, b"+WPI")

    async def _settle(self, how: bytes) -> None:
        self.settled = True
        await self._nc.publish(self.reply, how)


Handler = Callable[[NatsDelivery], Awaitable[None]]


log = logging.getLogger("cadre.queue")

_TICK_SECONDS = 1.0
"""Between two signs of life of what is at work, and two looks after the pulls."""

_MEND_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds between two tries to find a consumer whose stream is gone: until somebody does something about it."""

_SHORT_PULL_SECONDS = 0.05
_PULL_SECONDS = 10.0
"""Seconds that a pull stays open. A server that takes no pulls any more is noticed once the last one has ended."""

_HEARTBEAT_SECONDS = 2.0

_REDELIVER_AFTER_SECONDS = 0.5
_CANCEL_SECONDS = 1.0
"""For a handler to end once it is cancelled."""


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
        """Return the durable consumer's name."""
        return self._consumer

    def silent_for(self) -> float:
        """Return the seconds for which the server has given no sign of life on its pulls, though it owes some."""
        return self._pulls.silent_for() if self._nc.is_connected else 0.0

    @property
    def in_flight(self) -> int:
        """Return the number of deliveries in hand."""
        return len(self._work)

    @property
    def redelivered(self) -> int:
        """Return the number of redelivered messages: this process got them after some process had got them before."""
        return self._work.redelivered

    async def start(self) -> None:
        """Create the consumer if absent, however long that takes, and begins to pull. Raises SetupError."""
        await once_set_up(self._ensure_consumer, self._nc.setup, log)
        self._reconnects = self._nc.stats["reconnects"]
        await self._listen()
        await self._pull()
        silence_of(self._nc).follow(self)
        self._tasks["queue"] = asyncio.create_task(self._tick(), name=f"queue {self._consumer}")

    async def drain(self, grace: float) -> None:
        """Stop pulling, let work in flight end within `grace` seconds, hand the rest back."""
        self._is_stopping = True
        silence_of(self._nc).leave(self)
        if self._subscription is not None and self._nc.is_connected:
            # Ends the open pull: what the server had on its way to us comes back after the ack wait.
            await self._subscription.unsubscribe()
        await self._work.drain(grace)
        for task in self._tasks.values():
            task.cancel()

    def adopt(self, delivery: NatsDelivery, handler: Handler) -> bool:
        """Handle and settle a delivery in the place of the process that it was delivered to; returns False when it
        takes no more."""
        if not self._is_stopping:
            self._work.take(delivery, handler)
        return not self._is_stopping

    async def _ensure_consumer(self) -> None:
        await ensure_consumer(self._nc, self._stream, self._consumer, self._filter, self.most_deliveries)

    # --- pulling

    async def _listen(self) -> None:
        """Subscribe to a new inbox: pulls made with the former one are no longer served."""
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
        """Return how many messages to ask for: all that there is room for, once half of this queue's share is
        free."""
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
            # A separate task: the signs of life must go on however long this takes.
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


class Pulls:
    """Open pulls by their tokens, oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, _Pull] = {}
        self._count = 0
        self._unheard_since: float | None = None

    @property
    def promised(self) -> int:
        """Return the number of messages that the server may still send."""
        return sum(pull.left for pull in self._open.values())

    def open(self, messages: int) -> str:
        """Note a new pull; return its token."""
        self._count += 1
        token = str(self._count)
        self._open[token] = _Pull(messages)
        if self._unheard_since is None:
            self._unheard_since = time.monotonic()
        return token

    def pay(self) -> None:
        """A message has arrived. The server serves pulls in the order they came: the oldest one pays for it."""
        for token, pull in self._open.items():
            pull.heard = time.monotonic()
            pull.left -= 1
            if pull.left <= 0:
                del self._open[token]
            break
        self._note_heard()

    def hear(self, token: str) -> None:
        """A heartbeat of the pull has arrived."""
        if (pull := self._open.get(token)) is not None:
            pull.heard = time.monotonic()
            self._note_heard()

    def close(self, token: str) -> bool:
        """Forget a pull that has ended; False when it was not open."""
        is_open = self._open.pop(token, None) is not None
        self._note_heard()
        return is_open

    def silent_for(self) -> float:
        """Return the seconds since any of them was heard of, or the first was opened; 0 when none is waited for."""
        return time.monotonic() - self._unheard_since if self._unheard_since is not None else 0.0

    def _note_heard(self) -> None:
        self._unheard_since = time.monotonic() if self._open else None

    def close_silent(self, seconds: float) -> bool:
        """Forget the pulls that were not heard of for so long; returns whether there were any."""
        since = time.monotonic() - seconds
        silent = [token for token, pull in self._open.items() if pull.heard < since]
        for token in silent:
            del self._open[token]
        return bool(silent)

    def clear(self) -> None:
        """Forget them all."""
        self._open.clear()
        self._unheard_since = None


class _Pull:
    def __init__(self, left: int) -> None:
        self.left = left
        self.heard = time.monotonic()


class Work:
    """Handles each delivery in its own task, when the limiter has a place and its tree's turn has come.

    `freed` is called whenever a delivery is done.
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
        """Have the delivery handled. When the handler raises, the message is delivered again."""
        if delivery.seq in self._tasks:
            # Our own sign of life came too late; the first handler is still at it and will ack for both.
            log.debug("%s delivered again while in work", delivery.subject)
            return
        task = asyncio.create_task(self._handle(delivery, handler), name=delivery.subject)
        self._tasks[delivery.seq] = (delivery, task)
        self._limiter.add_in_hand()
        task.add_done_callback(lambda _: self._done(delivery))

    async def signs_of_life(self) -> None:
        """Report to the server that every unsettled delivery is still being handled."""
        for delivery, _ in list(self._tasks.values()):
            if not delivery.settled:
                await delivery.in_progress()

    async def drain(self, grace: float) -> None:
        """Let the handlers that have begun end within `grace` seconds, and hands all else back."""
        await self._hand_back([pair for pair in self._tasks.values() if not pair[0].begun])
        if tasks := [task for _, task in self._tasks.values()]:
            await asyncio.wait(tasks, timeout=grace)
        await self._hand_back(list(self._tasks.values()))

    async def _hand_back(self, work: list[tuple[NatsDelivery, asyncio.Task[None]]]) -> None:
        """End the handling of these messages, and then let another replica have them."""
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
            # This place must survive anything that a handler does: the record stays, and is redelivered.
            log.exception("handling %s failed: %s", delivery.subject, error)
            await self._nak(delivery, _REDELIVER_AFTER_SECONDS)

    async def _nak(self, delivery: NatsDelivery, delay: float) -> None:
        if not delivery.settled and not self._nc.is_closed:
            await delivery.nak(delay)

    def _done(self, delivery: NatsDelivery) -> None:
        del self._tasks[delivery.seq]
        self._limiter.remove_in_hand()
        self._freed()


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
        """Remove the consumer, with what it has not delivered. Raises BusUnavailable."""
        answer = await jetstream.api(self._nc, f"CONSUMER.DELETE.{self._stream}.{self._consumer}")
        error = answer.get("error")
        if error is not None and error.get("code") != 404:
            raise BusUnavailable(f"removing consumer {self._consumer}", error.get("description"))


Q = TypeVar("Q", bound=Queue)


class ShardQueues(Generic[Q]):
    """The queues of a durable consumer. `filter_of` says for which subjects of a shard each is."""

    def __init__(  # noqa: PLR0913 - what a queue is made of
        self,
        nc: NatsClient,
        watch: ShardWatch,
        consumer: str,
        filter_of: Callable[[int], str],
        handler: Handler,
        limit: FairLimiter,
        kind: type[Q],
    ) -> None:
        self._nc = nc
        self._watch = watch
        self._consumer = consumer
        self._filter_of = filter_of
        self._handler = handler
        self._limiter = limit
        self._kind = kind
        self._growing = asyncio.Lock()
        self.queues: list[Q] = []
        """By shard."""

    async def start(self) -> Self:
        """Start a queue on each shard there is, and on those to come. Raises SetupError."""
        # First, so that shards which are added meanwhile are not missed.
        self._watch.follow(self.grow)
        try:
            await self.grow()
        except BaseException:
            self._watch.leave(self.grow)
            raise
        return self

    async def grow(self) -> None:
        """Start a queue on each shard that has none. Raises SetupError."""
        async with self._growing:
            topology = self._watch.topology
            self._limiter.share_among(topology.shards)
            while (shard := len(self.queues)) < topology.shards:
                stream, subjects = topology.stream(shard), self._filter_of(shard)
                queue = self._kind(self._nc, stream, self._consumer, subjects, self._handler, limit=self._limiter)
                await queue.start()
                self.queues.append(queue)

    async def drain(self, grace: float) -> None:
        """Stop taking messages; finish or hand back those in hand within `grace` seconds."""
        self._watch.leave(self.grow)
        async with self._growing:
            await asyncio.gather(*(queue.drain(grace) for queue in self.queues))
