"""A durable pull consumer, shared by all replicas: one long pull kept open, credit for free slots only."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters import jetstream
from cadre.errors import RetryableError, SetupError

log = logging.getLogger("cadre.queue")

ACK_WAIT = 4.0
"""Seconds after which a record whose handler gives no sign of life goes to another replica."""

_SIGN_OF_LIFE = 1.0
_MAX_DELIVER = 20
_REDELIVER_AFTER = 0.5
_PULL_EXPIRES = 30.0
_PULL_HEARTBEAT = 2.0


class Delivery:
    """One delivery of one message, to be acked, handed back or given up."""

    def __init__(self, nc: Client, message: Msg) -> None:
        self._nc = nc
        self._reply = message.reply
        self.subject = message.subject
        self.data = message.data
        tokens = message.reply.split(".")
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.…, with domain and account hash before when long.
        at = 4 if len(tokens) < 11 else 6
        self.deliveries = int(tokens[at])
        self.seq = int(tokens[at + 1])
        self.settled = False

    async def ack(self) -> None:
        await self._settle(b"+ACK")

    async def nak(self, delay: float = 0.0) -> None:
        """Hands the message back, to be delivered again after `delay` seconds."""
        await self._settle(b'-NAK {"delay":%d}' % int(delay * 1e9) if delay else b"-NAK")

    async def term(self, reason: str) -> None:
        """Gives the message up: it is never delivered again, and kept as a dead letter with the reason."""
        await self._settle(b"+TERM " + " ".join(reason.split()).encode()[:500])

    async def in_progress(self) -> None:
        await self._nc.publish(self._reply, b"+WPI")

    async def _settle(self, how: bytes) -> None:
        self.settled = True
        await self._nc.publish(self._reply, how)


Handler = Callable[[Delivery], Awaitable[None]]


class Queue:
    """Delivers to `handler`, at most `credit` at once. A handler that raises has its message redelivered."""

    def __init__(
        self, nc: Client, stream: str, consumer: str, subject: str, handler: Handler, *, credit: int
    ) -> None:
        self._nc = nc
        self._stream = stream
        self._consumer = consumer
        self._filter = subject
        self._handler = handler
        self._credit = credit
        self._pulls: dict[str, _Pull] = {}
        self._pull_count = 0
        self._working: dict[int, tuple[Delivery, asyncio.Task[None]]] = {}
        self._subscription: Subscription | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._stopping = False
        self._inbox = ""

    async def start(self) -> None:
        """Creates the consumer if absent and begins to pull. Raises BusUnavailable, SetupError."""
        await self._ensure_consumer()
        self._inbox = self._nc.new_inbox()
        self._subscription = await self._nc.subscribe(f"{self._inbox}.*", cb=self._on_message)
        await self._pull()
        self._ticker = asyncio.create_task(self._tick(), name=f"queue {self._consumer}")

    @property
    def in_flight(self) -> int:
        return len(self._working)

    async def drain(self, grace: float) -> None:
        """Stops pulling, lets work in flight end within `grace` seconds, hands the rest back."""
        self._stopping = True
        if self._subscription is not None and self._nc.is_connected:
            # Ends the open pull: what the server had on its way to us comes back after the ack wait.
            await self._subscription.unsubscribe()
        if tasks := [task for _, task in self._working.values()]:
            await asyncio.wait(tasks, timeout=grace)
        for delivery, task in list(self._working.values()):
            task.cancel()
            if not delivery.settled:
                await delivery.nak()
        if self._ticker is not None:
            self._ticker.cancel()

    async def _ensure_consumer(self) -> None:
        config: dict[str, Any] = {
            "durable_name": self._consumer,
            "filter_subject": self._filter,
            "ack_policy": "explicit",
            "ack_wait": int(ACK_WAIT * 1e9),
            "max_deliver": _MAX_DELIVER,
            "max_ack_pending": 10_000,
            "max_waiting": 4096,
        }
        answer = await jetstream.api(
            self._nc,
            f"CONSUMER.CREATE.{self._stream}.{self._consumer}.{self._filter}",
            {"stream_name": self._stream, "config": config},
        )
        error = answer.get("error")
        if error is not None:
            raise SetupError(f"consumer {self._consumer} on {self._stream}: {error.get('description')}")

    # --- pulling

    async def _pull(self) -> None:
        """Asks for as many messages as there are free slots, once half of them are free."""
        promised = sum(pull.left for pull in self._pulls.values())
        want = self._credit - len(self._working) - promised
        if self._stopping or want < max(1, self._credit // 2):
            return
        self._pull_count += 1
        token = str(self._pull_count)
        self._pulls[token] = _Pull(want)
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
        delivery = Delivery(self._nc, message)
        if delivery.seq in self._working:
            # Our own sign of life came too late; the first handler is still at it and will ack for both.
            log.debug("%s delivered again while in work", delivery.subject)
        else:
            task = asyncio.create_task(self._work(delivery), name=delivery.subject)
            self._working[delivery.seq] = (delivery, task)
        await self._pull()

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
            await self._pull()
        # Anything else (consumer deleted, no responders) is left to the next tick, which is no busy loop.

    async def _work(self, delivery: Delivery) -> None:
        try:
            await self._handler(delivery)
        except RetryableError as error:
            log.warning("%s comes again: %s", delivery.subject, error)
            await self._hand_back(delivery)
        except Exception as error:
            # The one place that must survive whatever a handler does: the record stays, and comes again.
            log.exception("handling %s failed: %s", delivery.subject, error)
            await self._hand_back(delivery)
        finally:
            self._working.pop(delivery.seq, None)
            if not self._stopping:
                await self._pull()

    async def _hand_back(self, delivery: Delivery) -> None:
        if not delivery.settled and not self._nc.is_closed:
            await delivery.nak(_REDELIVER_AFTER)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_SIGN_OF_LIFE)
            try:
                await self._signs_of_life()
            except (nats.errors.Error, RetryableError, SetupError) as error:
                log.warning("queue %s: %s", self._consumer, error)

    async def _signs_of_life(self) -> None:
        for delivery, _ in list(self._working.values()):
            if not delivery.settled:
                await delivery.in_progress()
        silent = time.monotonic() - 2 * _PULL_HEARTBEAT - 1
        lost = [token for token, pull in self._pulls.items() if pull.heard < silent]
        if not lost:
            await self._pull()
            return
        # The server restarted or forgot the pull, perhaps the consumer too.
        for token in lost:
            del self._pulls[token]
        if self._nc.is_connected and not self._stopping:
            await self._ensure_consumer()
            await self._pull()


class _Pull:
    def __init__(self, left: int) -> None:
        self.left = left
        self.heard = time.monotonic()
