"""The engine's process as its owner sees it: it is started, serves many requests at once, and ends."""

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import msgspec

from cadre_memory.index.edge.child import EngineTiming
from cadre_memory.index.edge.frames import LENGTH, EngineReply, EngineRequest, Hello, frame
from cadre_memory.index.store import CollectionGone
from cadre_memory.index.vector_index import IndexRefused, IndexUnavailable

log = logging.getLogger("cadre.memory")

_END_SECONDS = 30.0
_START_SECONDS = 60.0
_reply = msgspec.msgpack.Decoder(EngineReply)
_hello = msgspec.msgpack.Decoder(Hello)


class ProcessEnded(IndexUnavailable):
    """The engine's process has ended before it answered: what was asked may have happened."""


class EdgeProcess:
    """A running process of the engine. `start` makes one."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._listening = asyncio.create_task(self._listen(), name="engine's answers")

    @classmethod
    async def start(cls, directory: Path, timing: EngineTiming) -> Self:
        """Starts the process and waits until it is ready.

        Raises IndexRefused when the directory is another's or cannot be read, ProcessEnded when it dies at once.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            process = _spawn(theirs, directory, timing)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            async with asyncio.timeout(_START_SECONDS + timing.lock_seconds):
                hello = _hello.decode(await _frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            await _end(process, writer)
            raise ProcessEnded(
                f"the engine's process ended with {process.returncode} at its start: its log says why"
            ) from None
        except BaseException:
            await _end(process, writer)
            raise
        if hello.failure:
            await _end(process, writer)
            raise IndexRefused(hello.failure)
        return cls(process, reader, writer)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still answers."""
        return not self._listening.done()

    async def ask(self, operation: str, *arguments: Any) -> msgspec.Raw:
        """Returns the operation's value as msgpack.

        Raises ProcessEnded, CollectionGone, and IndexUnavailable for whatever the engine raised.
        """
        if not self.alive:
            raise ProcessEnded("the engine's process has ended")
        number = next(self._numbers)
        future: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._writer.write(
                frame(EngineRequest(number, operation, msgspec.Raw(msgspec.msgpack.encode(arguments))))
            )
            await self._writer.drain()
            return await future
        except ConnectionError as error:
            await self._listening  # nobody takes it for alive any more
            raise ProcessEnded(f"the engine's process has ended: {error}") from None
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """Ends the process. What it holds then is on the disk; or, if it was too busy to flush, in its log."""
        with contextlib.suppress(IndexUnavailable, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self.ask("close")
        await self.end()

    async def end(self) -> None:
        """Hangs up, and kills the process when it does not end by itself."""
        await _end(self._process, self._writer)
        await self._listening

    def kill(self) -> None:
        """Kills the process at once. Requests that wait fail with ProcessEnded."""
        self._process.kill()

    async def _listen(self) -> None:
        """Takes answers until the process is gone; then fails all requests that still wait."""
        try:
            while True:
                answer = _reply.decode(await _frame(self._reader))
                future = self._waiting.pop(answer.number, None)
                # Whoever asked may have stopped waiting.
                if future is not None and not future.done():
                    _settle(future, answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except msgspec.MsgspecError:
            log.exception("the engine's process %d does not speak as it should", self._process.pid)
            self._process.kill()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ProcessEnded("the engine's process ended before its answer"))
        self._waiting.clear()


def _settle(future: asyncio.Future[msgspec.Raw], answer: EngineReply) -> None:
    if not answer.failure:
        # A copy: the view into the frame would keep all of it.
        future.set_result(answer.value.copy())
    elif answer.gone:
        future.set_exception(CollectionGone(answer.failure))
    else:
        future.set_exception(IndexUnavailable(f"the engine failed: {answer.failure}"))


def _spawn(theirs: socket.socket, directory: Path, timing: EngineTiming) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "cadre_memory.index.edge.child"),
        *(str(theirs.fileno()), str(os.getpid()), str(directory.absolute())),
        msgspec.json.encode(timing).decode(),
    ]
    return subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)


async def _end(process: subprocess.Popen[bytes], writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    try:
        await asyncio.to_thread(process.wait, _END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        await asyncio.to_thread(process.wait)
