"""Dead letters in JetStream: the server's advisory about a message that no worker handles, and that message; and
quarantine records, each on its own subject among the effects of its tree."""

import asyncio
import logging
from datetime import datetime
from typing import NamedTuple

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import FIRST_ID, RETRIED, StoredMessage, message_id
from cadre.delivery.codec import decode, encode
from cadre.errors import UnreadableMessage
from cadre.ports import QuarantineRecord
from cadre.protocol.topology import Subject, Topology

_NEVER_HANDLED = "delivered as often as the queue delivers a message, and never handled"

_OWN_HEADERS = "Nats-"
"""Begin the headers that speak to the server: ids, lifetimes, fences. They were about the first publication."""


class _Advisory(msgspec.Struct):
    timestamp: datetime
    stream: str
    consumer: str
    stream_seq: int
    deliveries: int = 0
    reason: str = ""


class DeadLetter(NamedTuple):
    """One message that was given up. Times are Unix seconds."""

    id: int
    at: float
    consumer: str
    stream: str
    seq: int
    """The sequence of the message in its stream."""
    deliveries: int
    reason: str
    message: StoredMessage | None
    """None when it is in its stream no more."""
    headers: dict[str, str]


class NatsDeadLetters:
    """Lists, reads, retries and drops the dead letters of a deployment. Every method raises BusUnavailable."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._stream = topology.dead_stream

    async def newest(self, limit: int, before: int | None = None) -> list[DeadLetter]:
        """Return at most `limit` letters, newest first; with `before`, those that are older than that one."""
        found = await jetstream.newest(self._nc, self._stream, limit, before)
        return list(await asyncio.gather(*map(self._whole, found)))

    async def read(self, letter: int) -> DeadLetter | None:
        """Return the letter with this id; None when it does not exist (any more)."""
        found = await jetstream.read(self._nc, self._stream, letter)
        return None if found is None else await self._whole(found[0])

    async def retry(self, letter: DeadLetter, message: StoredMessage) -> int:
        """Publish the letter's message once more, then removes the letter; returns the new sequence.

        The message goes without its id, since the deduplication window would take it for the first one; who starts runs
        by it finds that in another header.
        """
        first = message_id(letter.headers, letter.stream, letter.seq)
        headers = {name: value for name, value in letter.headers.items() if not name.startswith(_OWN_HEADERS)}
        seq = await jetstream.append(
            self._nc,
            message.subject,
            message.data,
            headers={**headers, RETRIED: str(letter.seq), FIRST_ID: first},
        )
        await jetstream.delete(self._nc, self._stream, letter.id)
        return seq

    async def drop(self, letter: DeadLetter) -> None:
        """Remove the letter's message, then the letter."""
        if letter.message is not None:
            await jetstream.delete(self._nc, letter.stream, letter.seq)
        await jetstream.delete(self._nc, self._stream, letter.id)

    async def _whole(self, held: StoredMessage) -> DeadLetter:
        try:
            advisory: _Advisory = decode(held.data, _Advisory)
        except UnreadableMessage as error:
            # The subject ends in stream and consumer; of the rest nothing is known.
            stream, consumer = held.subject.split(".")[-2:]
            return DeadLetter(held.seq, 0.0, consumer, stream, 0, 0, f"unreadable advisory: {error}", None, {})
        found = await jetstream.read(self._nc, advisory.stream, advisory.stream_seq)
        message, headers = found if found is not None else (None, {})
        return DeadLetter(
            id=held.seq,
            at=advisory.timestamp.timestamp(),
            consumer=advisory.consumer,
            stream=advisory.stream,
            seq=advisory.stream_seq,
            deliveries=advisory.deliveries,
            reason=advisory.reason or _NEVER_HANDLED,
            message=message,
            headers=headers,
        )


log = logging.getLogger("cadre.trial")

_CLEARED_TTL = "1s"


class NatsQuarantine:
    """Implements `ports.QuarantineStore` on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._topology = topology

    async def read(self, tree: str, seq: int) -> tuple[QuarantineRecord, int] | None:
        stream, subject = self._place(tree, seq)
        held = await jetstream.last(self._nc, stream, subject)
        if held is None:
            return None
        if not held.data:
            return QuarantineRecord(seq=seq), held.seq
        try:
            return decode(held.data, QuarantineRecord), held.seq
        except UnreadableMessage as error:
            log.warning("mark on %s ignored: %s", held.subject, error)
            return QuarantineRecord(seq=seq), held.seq

    async def write(self, tree: str, record: QuarantineRecord, fence: int) -> int:
        _, subject = self._place(tree, record.seq)
        return await jetstream.append(
            self._nc, subject, encode(record), expect=fence, headers={jetstream.ROLLUP: "sub"}
        )

    async def clear(self, tree: str, seq: int) -> None:
        # An empty message in its place, which soon expires: an executor has no right to remove messages.
        _, subject = self._place(tree, seq)
        headers = {jetstream.ROLLUP: "sub", jetstream.TTL: _CLEARED_TTL}
        await jetstream.append(self._nc, subject, b"", headers=headers)

    def _place(self, tree: str, seq: int) -> tuple[str, str]:
        return self._topology.stream_of(tree), self._topology.quarantine(tree, seq)


class AutomationQuarantine(NatsQuarantine):
    """The same for messages that are about no tree: ticks, events and deliveries, in the stream that they lie in."""

    def _place(self, tree: str, seq: int) -> tuple[str, str]:
        return self._topology.automation_stream, self._topology.subject(Subject.AUTOMATION_TRIAL, seq=seq)
