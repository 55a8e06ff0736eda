"""A TCP proxy that parses the NATS client protocol, and keeps back what a test names: a server that answers in part."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, Self

from harness.nats_server import free_port
from harness.patience import patience

API = re.compile(r"\$JS\.API\.")
"""Every request to JetStream: information, reads, pulls. Publishes to streams and acks are not among them."""

PULLS = re.compile(r"\$JS\.API\.CONSUMER\.MSG\.NEXT\.")
"""Pulls of consumers."""

JOURNAL_READS = re.compile(r"\$JS\.API\.STREAM\.MSG\.GET\.CADRE-\d")
"""Reads of the last entry of a run, and of other last messages of a shard."""


class Frame(NamedTuple):
    """A command of the protocol, with its payload if it has one."""

    verb: str
    words: list[str]
    data: bytes
    """As it was read, line ends included."""

    @property
    def subject(self) -> str:
        return self.words[0]

    @property
    def reply(self) -> str:
        """Return the reply subject of a published message; empty if it has none."""
        sizes = 2 if self.verb == "HPUB" else 1
        return self.words[1] if len(self.words) == 2 + sizes else ""


class NatsProxy:
    """Proxy a server on a separate port. Use it as a context manager.

    `swallow(pattern)` keeps back messages that clients publish to matching subjects; `swallow_acks()` keeps back the
    answers to what they publish elsewhere than to `$JS.` or an inbox, once the server has stored it. `let_pass()` ends
    both; what was kept back is lost. `answer_late(pattern, seconds)` has requests to matching subjects reach the server
    that much later, each in its turn; `asked` counts all that match `counted`.
    """

    counted: re.Pattern[str] | None = None

    def __init__(self, server_port: int) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.server_port = server_port
        self._swallowed: re.Pattern[str] | None = None
        self._keeps_acks = False
        self.kept = 0
        """Messages and answers that were kept back."""
        self._late: tuple[re.Pattern[str], float] | None = None
        self.asked = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._waiting: list[tuple[int, Future[None]]] = []

    def swallow(self, subjects: re.Pattern[str]) -> None:
        self._swallowed = subjects

    def swallow_acks(self) -> None:
        self._keeps_acks = True

    def answer_late(self, subjects: re.Pattern[str], seconds: float) -> None:
        self._late = (subjects, seconds)

    def let_pass(self) -> None:
        self._swallowed, self._keeps_acks, self._late = None, False, None

    def wait_kept(self, count: int) -> None:
        """Returns once so many messages and answers were kept back, since the proxy began."""
        found: Future[None] = Future()
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._wait, count, found)
        found.result(patience())

    def _wait(self, count: int, found: Future[None]) -> None:
        self._waiting.append((count, found))
        self._count(0)

    def _count(self, more: int) -> None:
        self.kept += more
        for waiting in [one for one in self._waiting if one[0] <= self.kept]:
            self._waiting.remove(waiting)
            waiting[1].set_result(None)

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(patience())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(patience())

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

        def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task that is cancelled before its first step could not close its connection.
            if self._stop.is_set():
                writer.close()
                return
            task = asyncio.create_task(self._connection(reader, writer))
            connections[task] = writer
            task.add_done_callback(connections.pop)

        server = await asyncio.start_server(on_connection, "127.0.0.1", self.port, limit=2**22)
        ready.set()
        await self._stop.wait()
        server.close()
        ended = list(connections)
        for task, writer in connections.items():
            task.cancel()
            writer.close()
        await asyncio.gather(*ended, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._connect(reader, writer)
        await _closed(writer)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self.server_port, limit=2**22)
        unanswered: set[str] = set()

        def keeps_published(frame: Frame) -> bool:
            if frame.verb not in ("PUB", "HPUB"):
                return False
            self.asked += self.counted is not None and self.counted.match(frame.subject) is not None
            if self._late is not None and self._late[0].match(frame.subject):
                asyncio.get_running_loop().call_later(self._late[1], to_server.write, frame.data)
                return True
            if self._swallowed is not None and self._swallowed.match(frame.subject):
                return True
            if self._keeps_acks and frame.reply and not frame.subject.startswith(("$JS.", "_INBOX")):
                unanswered.add(frame.reply)
            return False

        def keeps_answer(frame: Frame) -> bool:
            if frame.verb in ("MSG", "HMSG") and frame.subject in unanswered:
                unanswered.discard(frame.subject)
                return self._keeps_acks
            return False

        ways = [
            asyncio.create_task(self._copy(reader, to_server, keeps_published)),
            asyncio.create_task(self._copy(from_server, writer, keeps_answer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            to_server.close()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _closed(to_server)

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keeps: Callable[[Frame], bool]
    ) -> None:
        while (frame := await _read(reader)) is not None:
            if keeps(frame):
                self._count(1)
                continue
            writer.write(frame.data)
            await writer.drain()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Frame | None:
    """The next command; None at the end of the connection."""
    line = await reader.readline()
    if not line:
        return None
    verb, *words = line.decode("utf-8", "replace").split()
    verb = verb.upper()
    if verb not in ("PUB", "HPUB", "MSG", "HMSG"):
        return Frame(verb, words, line)
    return Frame(verb, words, line + await reader.readexactly(int(words[-1]) + 2))
