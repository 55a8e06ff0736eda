"""Read a stream in order, each message once, forever: across lost connections and restarted servers.

An ephemeral pull consumer without acks starts behind the last message handled. Whenever it cannot be trusted (silence
instead of heartbeats, a gap in its numbering, its end) a new one starts from there.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.errors import BusUnavailable

log = logging.getLogger("cadre.reader")

_BATCH = 256
_PULL_SECONDS = 30.0
_HEARTBEAT_SECONDS = 1.0
_SILENCE_SECONDS = 2.5
_INACTIVE_SECONDS = 30.0
_PAUSE_SECONDS = 0.25
_LEADER_CATCHES_UP_SECONDS = 10.0

# An empty batch, or one that ran out of time: the consumer itself is well.
_PULL_ENDED = ("404", "408")


class _Untrusted(Exception):
    """The consumer may have missed something: start a new one."""


class _ConsumerPull:
    """The pull of one consumer, and how far it has come."""

    def __init__(self, consumer: str, inbox: str) -> None:
        self.consumer, self.inbox = consumer, inbox
        self.left = 0
        """Messages still to come before it is asked again."""
        self.delivered = 0
        """The consumer's number of the last message."""


class OrderedReader:
    """Hands every message of `subject` behind sequence `after` to `handle`, one at a time. It is one filter: with two
    the server looks at each message in between, which costs it fifty times as much."""

    def __init__(
        self,
        nc: Client,
        stream: str,
        subject: str,
        after: int,
        handle: Callable[[StoredMessage], Awaitable[None]],
    ) -> None:
        self._nc = nc
        self.stream = stream
        self._subject = subject
        self._handle = handle
        self.position = after
        """Sequence of the last message handled."""
        self.caught_up = asyncio.Event()
        """Set while nothing that the server has is waiting to be read."""
        self._moved = asyncio.Event()
        self._created: str | None = None
        self._ahead_since: float | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            name = f"tail-{uuid.uuid4().hex}"
            try:
                await self._create(name)
                await self._read(name)
            except (_Untrusted, BusUnavailable, nats.errors.Error) as error:
                self.caught_up.clear()
                log.debug("%s from %d again: %s", self.stream, self.position, error)
            if self._nc.is_connected:
                self._discard(name)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def read_on(self, up_to: int | None = None) -> None:
        """Return once what the stream holds at this moment, up to that sequence, has been handled. Raises
        BusUnavailable."""
        if up_to is not None and self.position >= up_to:
            return
        goal = await self._newest(up_to)
        while self.position < goal:
            self._moved.clear()
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    await self._moved.wait()
            except TimeoutError:
                # It may have been removed before it was read.
                goal = min(goal, await self._newest(up_to))

    async def passed(self, seq: int) -> None:
        """Return once it has come to that sequence, or has caught up with what there was before it began."""
        while self.position < seq and not self.caught_up.is_set():
            self._moved.clear()
            await self._moved.wait()

    async def _newest(self, up_to: int | None) -> int:
        """Return the sequence of the last message on its subject, `up_to` for a later one."""
        held = await jetstream.last(self._nc, self.stream, self._subject)
        newest = held.seq if held is not None else 0
        return newest if up_to is None else min(newest, up_to)

    async def _create(self, name: str) -> None:
        await self._check_stream()
        config: dict[str, Any] = {
            "name": name,
            "filter_subject": self._subject,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.position + 1,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(_INACTIVE_SECONDS * 1e9),
        }
        body = {"stream_name": self.stream, "config": config}
        answer = await self._ask_server(f"CONSUMER.CREATE.{self.stream}.{name}", body)
        if answer.get("num_pending") == 0:
            self._note_caught_up()

    async def _check_stream(self) -> None:
        """Set the position back when the stream was replaced or set back: it would wait for a sequence that never
        comes."""
        answer = await self._ask_server(f"STREAM.INFO.{self.stream}")
        if self._created not in (None, answer["created"]):
            log.warning("stream %s was replaced: reading it from its start", self.stream)
            self.position = 0
        self._created = answer["created"]
        end = answer["state"]["last_seq"]
        if self.position <= end:
            self._ahead_since = None
            return
        if (answer.get("cluster") or {}).get("replicas") and self._is_newly_ahead():
            raise _Untrusted(f"a leader that has {end} of {self.position} messages")
        log.warning("stream %s ends at %d, before %d: it was set back", self.stream, end, self.position)
        self.position = end

    async def _ask_server(self, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return await jetstream.ask(self._nc, f"reading {self.stream}", what, body)

    def _is_newly_ahead(self) -> bool:
        """Return whether a new leader may still be applying what another replica has served already."""
        if self._ahead_since is None:
            self._ahead_since = time.monotonic()
        return time.monotonic() < self._ahead_since + _LEADER_CATCHES_UP_SECONDS

    async def _read(self, name: str) -> None:
        arrived: deque[Msg] = deque()
        news = asyncio.Event()

        async def note(message: Msg) -> None:
            arrived.append(message)
            news.set()

        pull = _ConsumerPull(name, self._nc.new_inbox())
        subscription = await self._nc.subscribe(pull.inbox, cb=note)
        try:
            await self._ask(pull)
            while True:
                while arrived:
                    await self._on_message(arrived.popleft(), pull)
                news.clear()
                try:
                    # Before Python 3.12 wait_for forgets a cancellation that comes together with the news.
                    async with asyncio.timeout(_SILENCE_SECONDS):
                        await news.wait()
                except TimeoutError:
                    raise _Untrusted("no heartbeat") from None
        finally:
            if not self._nc.is_closed:
                await subscription.unsubscribe()

    async def _on_message(self, message: Msg, pull: _ConsumerPull) -> None:
        if message.reply.startswith("$JS.ACK"):
            pull.left -= 1
            pull.delivered, pending = await self._take(message, pull.delivered)
            if pending == 0:
                self._note_caught_up()
        elif _ends_pull(message, pull.delivered):
            pull.left = 0
        if pull.left <= 0:
            await self._ask(pull)

    async def _take(self, message: Msg, delivered: int) -> tuple[int, int]:
        """Handle one message; returns the consumer's number of it, and how many the server still has."""
        tokens = message.reply.split(".")
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>; a longer form
        # has domain and account hash before the stream.
        at = 5 if len(tokens) < 11 else 7
        seq, number, pending = int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 3])
        stored = int(tokens[at + 2]) / 1e9
        if number != delivered + 1:
            raise _Untrusted(f"message {number} came after {delivered}")
        if seq > self.position:
            imported = jetstream.IMPORTED in (message.headers or ())
            await self._handle(StoredMessage(seq, message.subject, message.data, stored, imported))
            self.position = seq
            self._moved.set()
        return number, pending

    def _note_caught_up(self) -> None:
        self.caught_up.set()
        self._moved.set()

    async def _ask(self, pull: _ConsumerPull) -> None:
        pull.left = _BATCH
        request = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (
            _BATCH,
            int(_PULL_SECONDS * 1e9),
            int(_HEARTBEAT_SECONDS * 1e9),
        )
        await self._nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{pull.consumer}", request, reply=pull.inbox)

    def _discard(self, name: str) -> None:
        """Free the consumer at once; when that fails the server does it after a while of silence."""

        async def discard() -> None:
            try:
                await self._nc.publish(f"$JS.API.CONSUMER.DELETE.{self.stream}.{name}", b"")
            except nats.errors.Error as error:
                log.debug("consumer %s left to expire: %s", name, error)

        self._discarding = asyncio.create_task(discard())


def _ends_pull(message: Msg, delivered: int) -> bool:
    """Return whether the pull has ended. Raises _Untrusted when messages were lost or the consumer is gone."""
    headers = message.headers or {}
    status = headers.get("Status", "")
    if status == "100":
        if int(headers.get("Nats-Last-Consumer", delivered)) != delivered:
            raise _Untrusted("a message was lost on its way")
        return False
    if status in _PULL_ENDED:
        return True
    raise _Untrusted(f"{status} {headers.get('Description', '')}".strip())
