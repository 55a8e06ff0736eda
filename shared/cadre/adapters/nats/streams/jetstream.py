"""Make raw JetStream requests that nats-py lacks or makes slowly: fenced publish, leader reads, pipelined gets,
lists page by page."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.adapters.nats.connection.keys import may_ask_leader
from cadre.adapters.nats.connection.requests import request
from cadre.adapters.nats.connection.silence import Asked, silence_of
from cadre.errors import BusFull, BusUnavailable, Fenced, OutcomeUnknown, TooLarge

MAX_MESSAGE_BYTES = 768 * 1024
"""Size, headers included, of the largest message that Cadre stores, and that its streams take."""

ANSWER_SECONDS = 5.0
"""Seconds that a request to the server may take."""

EXPECT = "Nats-Expected-Last-Subject-Sequence"
EXPECT_OF = "Nats-Expected-Last-Subject-Sequence-Subject"
"""The subject that EXPECT is about, if it is another one of the stream."""
MESSAGE_ID = "Nats-Msg-Id"
TTL = "Nats-TTL"
SCHEDULE = "Nats-Schedule"
SCHEDULE_TARGET = "Nats-Schedule-Target"
SCHEDULE_TTL = "Nats-Schedule-TTL"
SCHEDULER = "Nats-Scheduler"
ROLLUP = "Nats-Rollup"
SCHEDULE_NEXT = "Nats-Schedule-Next"
RETRIED = "Cadre-Retried"
"""On a dead letter that was published again: where it lay before."""
FIRST_ID = "Cadre-First-Id"
"""On such a message too: the `message_id` with which it was first published."""
PASSED_ON = "Cadre-Passed-On"
"""On a record in the queue of a revision: where it lay first, in the agent's own queue."""
IMPORTED = "Cadre-Imported"
"""On a journal entry that came from a file: its events happened elsewhere."""

_AROUND = 16
"""Bytes at most that the protocol adds to all headers, and to each of them."""

# "wrong last sequence", and its form without the number while the subject has a write in flight.
_FENCE_CODES = {10071, 10164}
_TOO_LARGE = 10054
_NO_MESSAGE = 10037
_NOT_DELETED = 10057
# The limits of the account, of the server's disk or memory, of a stream (maximum bytes), of its tier.
_FULL = {10002, 10023, 10028, 10047, 10077}
# JetStream is off for the account, or on this server.
_OFF = {10039, 10076}
# No leader, or not enough servers yet; all that a stream or consumer needs is there, but not at this moment.
_PASSING = {10004, 10005, 10007, 10008, 10009, 10023, 10118, 10119, 10194, 10195}


_LATEST = 4_102_444_800.0
"""The year 2100: dates beyond the year 9999 cannot be written, and nothing waits for them."""

_PAUSE_SECONDS = 0.05


def message_id(headers: Mapping[str, str], stream: str, seq: int) -> str:
    """Return what names the message, also when it was published again: the id from its sender, else its first place."""
    return headers.get(FIRST_ID) or headers.get(MESSAGE_ID) or f"{stream}/{seq}"


class TooManySubjects(Exception):
    """The server names the last messages of 1024 subjects at once."""


class _Error(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: _Error | None = None


class _RawMessage(msgspec.Struct):
    seq: int
    subject: str
    data: str = ""
    hdrs: str = ""
    time: datetime | None = None


class _Got(msgspec.Struct):
    message: _RawMessage | None = None
    error: _Error | None = None


class StoredMessage(NamedTuple):
    """A message as a stream holds it."""

    seq: int
    subject: str
    data: bytes
    at: float = 0.0
    """The time it was stored, in Unix seconds by the server's clock; 0 if it was not requested."""
    imported: bool = False
    """It came with a run from elsewhere; known only to readers of a whole stream."""
    headers: Mapping[str, str] | None = None
    """Those that it was sent with, and the stream's own; None where they were not read."""


_decode_ack = msgspec.json.Decoder(_PubAck).decode
_decode_got = msgspec.json.Decoder(_Got).decode


async def append(
    nc: Client,
    subject: str,
    data: bytes,
    *,
    expect: int | None = None,
    headers: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> int:
    """Publish to a stream and return the sequence it got.

    With `expect`, only if the subject's last message has that sequence (0: there is no message). `meanwhile` is called
    while the answer is awaited. Raises Fenced, TooLarge, BusFull or BusUnavailable (nothing was stored), or
    OutcomeUnknown.
    """
    fields = dict(headers) if headers else {}
    if expect is not None:
        fields[EXPECT] = str(expect)
    size = len(data) + len("".join((*fields, *fields.values()))) + _AROUND * (len(fields) + 1)
    if size > nc.max_payload:
        if size <= MAX_MESSAGE_BYTES:
            # Nothing is wrong with the message: it is stored once the server is as it must be.
            raise BusUnavailable(f"publishing to {subject}", payload_lack(nc))
        raise TooLarge(f"a message to {subject}", size, nc.max_payload)
    answer = await _request(nc, subject, data, fields, OutcomeUnknown, meanwhile)
    ack = _decode_ack(answer.data)
    if ack.error is None:
        return ack.seq
    if ack.error.err_code in _FENCE_CODES:
        raise Fenced(f"{subject}: {ack.error.description}")
    if ack.error.err_code == _TOO_LARGE:
        raise TooLarge(f"a message to {subject}", len(data), nc.max_payload)
    if ack.error.err_code in _FULL:
        raise BusFull(f"a message to {subject}", ack.error.description)
    raise BusUnavailable(f"publishing to {subject}", ack.error.description)


async def schedule(nc: Client, subject: str, data: bytes, target: str, due: float, ttl: str | None = None) -> int:
    """Have the server publish the data to `target`, in the same stream, at `due` in Unix seconds; return the sequence
    of what it keeps on `subject` until then.

    It takes the place of what `subject` held. With `ttl` what is published is removed after so long. Raises as
    `append`.
    """
    moment = datetime.fromtimestamp(min(due, _LATEST), UTC)
    when = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    headers = {SCHEDULE: f"@at {when}", SCHEDULE_TARGET: target}
    return await append(nc, subject, data, headers=headers | ({SCHEDULE_TTL: ttl} if ttl else {}))


async def last(nc: Client, stream: str, subject: str) -> StoredMessage | None:
    """Return the subject's last message as the stream's leader has it: never stale; None when there is no message.

    A user that may not ask for any message of the stream is answered by any replica, which may lag.
    """
    if not may_ask_leader(nc, stream):
        return await _last_of_any(nc, stream, subject)
    message = await _ask_leader(nc, stream, {"last_by_subj": subject})
    if message is None:
        return None
    at = message.time.timestamp() if message.time is not None else 0.0
    return StoredMessage(message.seq, message.subject, base64.b64decode(message.data), at)


async def _last_of_any(nc: Client, stream: str, subject: str) -> StoredMessage | None:
    """Ask with the subject as part of the request, so that permissions can speak of it."""
    answer = await _request(nc, f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", {}, BusUnavailable)
    headers = answer.headers or {}
    if headers.get("Status"):
        return None
    at = datetime.fromisoformat(headers["Nats-Time-Stamp"]).timestamp()
    return StoredMessage(int(headers["Nats-Sequence"]), headers["Nats-Subject"], answer.data, at)


async def read(nc: Client, stream: str, seq: int) -> tuple[StoredMessage, dict[str, str]] | None:
    """Return the message at a sequence and its headers, as the stream's leader has it; None when it is gone."""
    message = await _ask_leader(nc, stream, {"seq": seq})
    if message is None:
        return None
    lines = base64.b64decode(message.hdrs).decode().split("\r\n")[1:]
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    return StoredMessage(message.seq, message.subject, base64.b64decode(message.data)), headers


async def following(nc: Client, stream: str, subject: str, after: int = 0) -> StoredMessage | None:
    """Return the first message on the subject (wildcards allowed) behind a sequence, as the stream's leader has it."""
    message = await _ask_leader(nc, stream, {"seq": after + 1, "next_by_subj": subject})
    return None if message is None else StoredMessage(message.seq, message.subject, base64.b64decode(message.data))


async def delete(nc: Client, stream: str, seq: int) -> bool:
    """Remove one message; return False when it does not exist. Raises BusUnavailable."""
    answer = await api(nc, f"STREAM.MSG.DELETE.{stream}", {"seq": seq, "no_erase": True})
    error = answer.get("error")
    if error is None:
        return True
    if error.get("err_code") == _NOT_DELETED:
        return False
    raise BusUnavailable(f"removing message {seq} of {stream}", error.get("description"))


async def purge(nc: Client, stream: str, subject: str, before: int | None = None) -> int:
    """Remove all messages on the subject (wildcards allowed), with `before` those below that sequence.

    Returns how many there were. Raises BusUnavailable.
    """
    body: dict[str, Any] = {"filter": subject}
    if before is not None:
        body["seq"] = before
    answer = await ask(nc, f"removing {subject} from {stream}", f"STREAM.PURGE.{stream}", body)
    purged: int = answer["purged"]
    return purged


async def _ask_leader(nc: Client, stream: str, query: dict[str, Any]) -> _RawMessage | None:
    answer = await _request(nc, f"$JS.API.STREAM.MSG.GET.{stream}", json.dumps(query).encode(), {}, BusUnavailable)
    got = _decode_got(answer.data)
    if got.message is not None:
        return got.message
    if got.error is not None and got.error.err_code == _NO_MESSAGE:
        return None
    raise BusUnavailable(f"reading from {stream}", got.error.description if got.error else "empty answer")


async def get(nc: Client, stream: str, seq: int) -> StoredMessage | None:
    """Return the message at a sequence, from any replica; None when this replica has none (yet, or any more)."""
    query = b'{"seq":%d}' % seq
    answer = await _request(nc, f"$JS.API.DIRECT.GET.{stream}", query, {}, BusUnavailable)
    headers = answer.headers or {}
    if headers.get("Status"):
        return None
    return StoredMessage(seq, headers.get("Nats-Subject", ""), answer.data)


async def batch(nc: Client, stream: str, query: dict[str, Any]) -> list[StoredMessage]:
    """Make a batched direct get (`{"seq", "batch", "next_by_subj"}` or `{"multi_last": […]}`) and return all of it.

    Raises BusUnavailable when the server falls silent before its end-of-batch message, or the connection is closed;
    TooManySubjects.
    """
    inbox = nc.new_inbox()
    subscription: Subscription | None = None
    found: list[StoredMessage] = []
    try:
        subscription = await nc.subscribe(inbox)
        await nc.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(query).encode(), reply=inbox)
        while True:
            message = await subscription.next_msg(timeout=ANSWER_SECONDS)
            headers = message.headers or {}
            status = headers.get("Status")
            if status in ("204", "404"):
                return found
            if status == "413":
                raise TooManySubjects
            if status:
                raise BusUnavailable(f"reading from {stream}", headers.get("Description", status))
            seq, place = int(headers["Nats-Sequence"]), headers["Nats-Subject"]
            found.append(StoredMessage(seq, place, message.data, headers=headers))
    except nats.errors.Error as error:
        raise BusUnavailable(f"reading from {stream}", error) from error
    finally:
        # A closed connection has no subscriptions left, and would raise another error.
        if subscription is not None and not nc.is_closed:
            await subscription.unsubscribe()


async def api(nc: Client, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make one call of the JetStream API; the answer may hold `error`. Raises BusUnavailable."""
    data = json.dumps(body).encode() if body is not None else b""
    answer = await _request(nc, f"$JS.API.{subject}", data, {}, BusUnavailable)
    decoded: dict[str, Any] = json.loads(answer.data)
    return decoded


async def ask(nc: Client, doing: str, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Do as `api`, but raises BusUnavailable, which says what was being done, for any error."""
    answer = await api(nc, subject, body)
    if error := answer.get("error"):
        raise BusUnavailable(doing, error.get("description"))
    return answer


async def stream_info(nc: Client, stream: str) -> dict[str, Any] | None:
    """Return `config`, `state` and `created` of the stream in the JSON of the JetStream API; None when no stream has
    this name. Raises BusUnavailable."""
    answer = await api(nc, f"STREAM.INFO.{stream}")
    error = answer.get("error")
    if error is None:
        return answer
    if error.get("code") == 404:
        return None
    raise BusUnavailable(f"asking for stream {stream}", error.get("description"))


def is_passing(error: dict[str, Any]) -> bool:
    """Return whether an error of the JetStream API is that of a cluster that elects, or is not complete yet."""
    return error.get("err_code") in _PASSING


async def account(nc: Client) -> dict[str, Any] | None:
    """Return the use and the limits of the account, in the JSON of the JetStream API; None where JetStream is off for
    it, here and (at a leaf node) behind a hub. Raises BusUnavailable."""
    try:
        answer = await request(nc, "$JS.API.INFO", b"", None, ANSWER_SECONDS)
    except nats.errors.NoRespondersError:
        return None
    except nats.errors.Error as error:
        raise BusUnavailable("asking for JetStream", str(error) or "no answer") from error
    found: dict[str, Any] = json.loads(answer.data)
    if refused := found.get("error"):
        if refused.get("err_code") in _OFF:
            return None
        raise BusUnavailable("asking for JetStream", refused.get("description"))
    return found


def payload_lack(nc: Client) -> str | None:
    """Return what to do about a server that takes smaller messages than Cadre sends; None where it takes them."""
    if nc.max_payload >= MAX_MESSAGE_BYTES:
        return None
    return (
        f"the NATS server takes messages of {nc.max_payload:,} bytes at most, and Cadre sends up to"
        f" {MAX_MESSAGE_BYTES:,}: set max_payload: 1MB in its configuration and restart it"
    )


async def _request(
    nc: Client,
    subject: str,
    data: bytes,
    headers: dict[str, str],
    silent: type[BusUnavailable] | type[OutcomeUnknown],
    meanwhile: Callable[[], None] | None = None,
) -> Msg:
    silence, key = silence_of(nc), object()
    what: Asked = "requests" if subject.startswith("$JS.API.") else "publishes"
    silence.ask(what, key)
    try:
        answer = await request(nc, subject, data, headers or None, ANSWER_SECONDS, meanwhile)
    except nats.errors.NoRespondersError as error:
        silence.hear(what, key)
        raise BusUnavailable(f"asking {subject}", "no stream or no leader there") from error
    except nats.errors.TimeoutError as error:
        silence.give_up(what, key)
        raise silent(subject, f"no answer within {ANSWER_SECONDS:g} s") from error
    except nats.errors.Error as error:
        raise silent(subject, error) from error
    finally:
        silence.forget(what, key)
    silence.hear(what, key)
    return answer


class ReplicaTries:
    """`async for _ in ReplicaTries(seconds)`: reads in the body are tried, with pauses between them, until the body
    leaves the loop or the time is up. Any replica may answer the next read."""

    def __init__(self, seconds: float) -> None:
        self._left = max(1, round(seconds / _PAUSE_SECONDS))
        self._begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        if self._begun:
            await asyncio.sleep(_PAUSE_SECONDS)
        self._begun = True


_PAGE = 128


async def messages(nc: Client, stream: str, subject: str, after: int = 0) -> AsyncIterator[StoredMessage]:
    """Yield the messages on the subject (wildcards allowed) behind sequence `after`, as any replica has them. Raises
    BusUnavailable."""
    while page := await batch(nc, stream, {"seq": after + 1, "batch": _PAGE, "next_by_subj": subject}):
        for message in page:
            yield message
        after = page[-1].seq


async def newest(
    nc: Client, stream: str, limit: int, before: int | None = None, subject: str = ">"
) -> list[StoredMessage]:
    """At most `limit` messages of the stream, newest first; with `before`, those below that sequence. Raises
    BusUnavailable."""
    answer = await ask(nc, f"asking for {stream}", f"STREAM.INFO.{stream}")
    first, end = answer["state"]["first_seq"], answer["state"]["last_seq"] + 1
    end = min(end, before) if before is not None else end
    found: list[StoredMessage] = []
    width = limit
    while len(found) < limit and end > max(first, 1):
        # Removed messages leave gaps: each look back is twice as wide.
        begin = max(first, end - width, 1)
        query = {"seq": begin, "batch": width, "next_by_subj": subject}
        page = [held for held in await batch(nc, stream, query) if held.seq < end]
        found += reversed(page)
        end, width = begin, 2 * width
    return found[:limit]


async def subjects(nc: Client, stream: str, wanted: str) -> list[str]:
    """Return the subjects that match and hold messages, as the stream's leader has them. Raises BusUnavailable."""
    found: list[str] = []
    while True:
        query = {"subjects_filter": wanted, "offset": len(found)}
        answer = await ask(nc, f"listing {wanted}", f"STREAM.INFO.{stream}", query)
        page = answer["state"].get("subjects") or {}
        found += page
        if not page or len(found) >= answer.get("total", 0):
            return found


async def consumers(nc: Client, stream: str) -> list[dict[str, Any]]:
    """Return all consumers of the stream, each as the JetStream API describes it, but those whose servers are away.
    Raises BusUnavailable."""
    found: list[dict[str, Any]] = []
    told = 0
    while True:
        doing = f"asking for the consumers of {stream}"
        answer = await ask(nc, doing, f"CONSUMER.LIST.{stream}", {"offset": told})
        page = answer.get("consumers") or []
        found += page
        # The server has waited four seconds for what is missing. Asked for it again it waits as long.
        told += len(page) + len(answer.get("missing") or ())
        if not page or told >= answer["total"]:
            return found
