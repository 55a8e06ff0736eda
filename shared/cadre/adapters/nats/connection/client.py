"""nats-py's client, mended where a message or an unlucky moment would leave a process deaf without a word.

The original stops reading at what it cannot decode, stops reconnecting at an error that only uvloop raises, and closes
itself at most errors that a server reports: each is met where it arises (decision 0016). What it
does for every message is done at less cost here: headers are not looked at letter by letter, and answers to requests go
to who waits for them without a queue and a task between.
"""

import asyncio
import functools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from cadre.delivery.retry import NO_SETUP

log = logging.getLogger("cadre.nats")

_VERSION = b"NATS/1.0\r\n"
_END = b"\r\n"
_LAST_WORDS_SECONDS = 0.1
_LAST_WORDS = re.compile(rb"-ERR '([^'\r\n]*)'")
_is_token = functools.lru_cache(maxsize=256)(re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch)


class NatsClient(Client):
    """A client that calls `given_up` with the reason when it has closed itself for good, unasked."""

    def __init__(self, given_up: Callable[[str], None]) -> None:
        super().__init__()
        self._given_up = given_up
        self.read_seed: Callable[[], str | None] | None = None
        """Reads the seed of its key before each try to connect; None keeps the one that it has."""
        self.setup = NO_SETUP
        """The wait of its user for what others set up on the server."""
        self._leaving = False
        self._was_reset = False
        """The server hung up on the last try to connect."""
        self._listeners: dict[int, Callable[[Msg], None]] = {}

    async def close(self) -> None:
        """Close the connection, as asked: `given_up` is not called."""
        self._leaving = True
        await super().close()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        if not self._leaving and not self.is_closed:
            # Before a caller that finds the connection closed can report it without the reason.
            self._leaving = True
            self._given_up(str(self._err or "the client closed itself"))
        await super()._close(status, do_cbs)

    async def _process_connect_init(self) -> None:
        seed = self.read_seed() if self.read_seed is not None else None
        if seed is not None and seed != self._nkeys_seed_str:
            self._nkeys_seed_str = seed
            self._setup_nkeys_connect()
        try:
            await super()._process_connect_init()
        except OSError:
            self._was_reset = True
            raise
        except RuntimeError as error:
            # uvloop's word for writing to a connection that was reset: one more reason to try again.
            self._was_reset = True
            raise ConnectionResetError(str(error)) from error
        self._was_reset = False

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        await super()._process_info(info, initial_connection)
        if initial_connection and self._was_reset:
            # A server that has no connection left says so behind its greeting and hangs up: an answer would be met by
            # a reset, which takes what was not read yet.
            await asyncio.sleep(_LAST_WORDS_SECONDS)
            reader = getattr(self._transport, "_io_reader", None)
            if found := _LAST_WORDS.search(bytes(getattr(reader, "_buffer", b""))):
                raise nats.errors.Error(f"nats: {found[1].decode(errors='replace')}")

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        lines = _header_lines(headers) if headers else b""
        size = len(payload)
        if (
            lines is None
            or not self.is_connected
            or size > self._max_payload
            or self._pending_data_size + size > self._max_pending_size
            or not _is_word(f"{subject}{reply}")
        ):
            # What is to be mended, refused or waited for is left to the original.
            await super().publish(subject, payload, reply, headers)
            return
        if lines:
            about = f"HPUB {subject} {reply} {len(lines)} {len(lines) + size}\r\n"
        else:
            about = f"PUB {subject} {reply} {size}\r\n"
        command = b"%s%s%s\r\n" % (about.encode(), lines, payload)
        self.stats["out_msgs"] += 1
        self.stats["out_bytes"] += size
        self._pending.append(command)
        self._pending_data_size += len(command)
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        try:
            return await super()._flush_pending(force_flush)
        except RuntimeError:
            # uvloop's error for writing to a connection that was lost a moment ago. The reader finds that out; what is
            # pending is sent once the client has connected again, as while it is known to be away.
            log.debug("a write met a lost connection", exc_info=True)
            flushed = asyncio.get_running_loop().create_future()
            flushed.set_result(None)
            return flushed

    async def listen(self, subject: str, take: Callable[[Msg], None]) -> Subscription:
        """Subscribe; `take` is called with each message as it is read, and must be quick."""

        async def once_more(message: Msg) -> None:
            take(message)

        subscription = await self.subscribe(subject, cb=once_more)
        self._listeners[subscription._id] = take
        return subscription

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._listeners.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> None:
        if (take := self._listeners.get(sid)) is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        found = None
        if headers:
            if headers.startswith(_VERSION):
                found = self._parse_header_lines(headers[len(_VERSION) :]) or None
            else:
                found = await self._process_headers(headers)
        try:
            take(self._build_message(sid, subject, reply, data, found))
        except Exception as error:
            # As the original does with what a callback raises: the reading goes on.
            await self._error_cb(error)

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        found = {}
        for line in raw.decode("utf-8", "replace").split("\r\n"):
            name, colon, value = line.partition(":")
            if colon and (known := _header_name(name)):
                found[known] = value.strip()
        return found

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except (UnicodeDecodeError, IndexError) as error:
            log.warning("a message has headers that cannot be read: it is taken without (%s)", error)
            return None
        return found

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Any:
        try:
            return Msg(self, subject.decode(), reply.decode(), data, headers, _sid=sid)
        except UnicodeDecodeError:
            return Msg(self, _as_text(subject), _as_text(reply), data, headers, _sid=sid)

    async def _process_pong(self) -> None:
        # The caller may have been cancelled, or have timed out.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()


@functools.lru_cache(maxsize=256)
def _header_name(text: str) -> str:
    """Return the name of a header without the space around it; "" when it is invalid."""
    words = text.split()
    return words[0] if len(words) == 1 and text.isascii() else ""


def _header_lines(headers: Mapping[str, str]) -> bytes | None:
    """Return the headers as they are sent; None for some that the original must mend or refuse."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") + text.count("\r") != 2 * len(headers) or not all(map(_is_token, headers)):
        return None
    return b"%s%s%s" % (_VERSION, text.encode(), _END)


def _is_word(text: str) -> bool:
    """Return whether the text has no space in it, and is not empty. A pattern would take three times as long."""
    return text.split() == [text]


def _as_text(name: bytes) -> str:
    """Return the name with a mark for each byte that is no text."""
    return name.decode(errors="replace")
