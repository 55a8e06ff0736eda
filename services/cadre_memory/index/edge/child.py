"""The engine's process: takes one request after the other, flushes by the clock, tidies up when idle.

It ends with its owner: by the socket's end when it waits, by a signal when it works (on Linux).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import IO, Any

import msgspec

from cadre_memory.index.edge.engine import Engine
from cadre_memory.index.edge.frames import LENGTH, MOST_BYTES, Answer, Asked, Close, Hello, frame
from cadre_memory.index.store import CollectionGone
from cadre_memory.index.vector_index import IndexRefused

_PR_SET_PDEATHSIG = 1
_LOCK = "owner"
_asked = msgspec.msgpack.Decoder(Asked)


class Timing(msgspec.Struct, frozen=True):
    """Seconds."""

    flush: float = 1.0
    """What a power cut may take; the kill of a process takes nothing."""
    idle: float = 5.0
    """Without a request, after which it tidies up."""
    lock: float = 10.0
    """How long a former owner may take to be gone."""


class Child:
    def __init__(self, owner: socket.socket, engine: Engine, timing: Timing) -> None:
        self._owner = owner
        self._engine = engine
        self._timing = timing
        self._flushed = time.monotonic()

    def serve(self) -> None:
        """Until it is told to close, or the owner is gone."""
        while True:
            if not self._waited():
                continue
            try:
                asked = _asked.decode(_read(self._owner))
            except EOFError:
                self._engine.close()
                return
            self._tell(self._answer(asked))
            if isinstance(asked.request, Close):
                return

    def _waited(self) -> bool:
        """Whether a request is there. Until then does what is due."""
        self._flush_if_due()
        waits = self._timing.flush if self._engine.dirty else self._timing.idle
        if select.select([self._owner], [], [], waits)[0]:
            return True
        if self._engine.dirty:
            self._flush_if_due()
        elif self._engine.untidy:
            self._engine.vacuum()
        return False

    def _flush_if_due(self) -> None:
        if self._engine.dirty and time.monotonic() - self._flushed >= self._timing.flush:
            self._engine.flush()
            self._flushed = time.monotonic()

    def _answer(self, asked: Asked) -> Answer:
        try:
            value = msgspec.Raw(msgspec.msgpack.encode(self._engine.do(asked.request)))
        except CollectionGone as error:
            return Answer(asked.number, failure=str(error), gone=True)
        except Exception as error:
            # The engine raises bare exceptions; what they mean is for the owner to decide.
            return Answer(asked.number, failure=f"{type(error).__name__}: {error}")
        return Answer(asked.number, value)

    def _tell(self, answer: Answer) -> None:
        self._owner.sendall(frame(answer))


def _read(owner: socket.socket) -> bytes:
    (length,) = LENGTH.unpack(_exactly(owner, LENGTH.size))
    if length > MOST_BYTES:
        raise EOFError
    return _exactly(owner, length)


def _exactly(owner: socket.socket, size: int) -> bytes:
    """Raises EOFError when the owner is gone."""
    parts = bytearray(size)
    view = memoryview(parts)
    while view:
        try:
            got = owner.recv_into(view)
        except ConnectionError:
            got = 0
        if not got:
            raise EOFError
        view = view[got:]
    return bytes(parts)


def _lock(directory: Path, patience: float) -> IO[bytes]:
    """Held while the file is open. Raises IndexRefused when another process holds it for longer than `patience`."""
    directory.mkdir(parents=True, exist_ok=True)
    file = (directory / _LOCK).open("a+b")
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                file.seek(0)
                holder = file.read().decode(errors="replace").strip()
                file.close()
                raise IndexRefused(
                    f"{directory} is in use by process {holder}: only one memory service can own it; stop the"
                    " other, or give this one a directory of its own"
                ) from None
            time.sleep(0.05)
        else:
            file.truncate(0)
            file.write(str(os.getppid()).encode())
            file.flush()
            return file


def _die_with(parent: int) -> None:
    """Also in the middle of long work, when the socket is not looked at; the log keeps what was acknowledged."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal's interrupt is for the owner, which then closes this
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main(arguments: list[str]) -> None:
    handle, parent, directory, timing = arguments
    _die_with(int(parent))
    owner = socket.socket(fileno=int(handle))
    try:
        lock, engine = _open(Path(directory), msgspec.json.decode(timing, type=Timing))
    except IndexRefused as error:
        owner.sendall(frame(Hello(failure=str(error))))
        sys.exit(1)
    except Exception as error:
        # Files that the engine cannot read: a bare exception too.
        owner.sendall(frame(Hello(failure=f"{directory} cannot be opened: {error}")))
        sys.exit(1)
    with lock:
        owner.sendall(frame(Hello()))
        Child(owner, engine, msgspec.json.decode(timing, type=Timing)).serve()


def _open(directory: Path, timing: Timing) -> tuple[Any, Engine]:
    lock = _lock(directory, timing.lock)
    return lock, Engine(directory)


if __name__ == "__main__":
    main(sys.argv[1:])
