"""The engine's process: serves one request after the other, flushes by the clock, tidies up when idle.

It ends with its owner: by the socket's end when it waits, by a signal when it works (on Linux).
"""

import ctypes
import fcntl
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import IO

import msgspec

from cadre_memory.index.edge.engine import Engine
from cadre_memory.index.edge.frames import LENGTH, MAX_FRAME_BYTES, EngineReply, EngineRequest, Hello, frame
from cadre_memory.index.store import CollectionGone
from cadre_memory.index.vector_index import IndexRefused

_PR_SET_PDEATHSIG = 1
_LOCK = "owner"
_request = msgspec.msgpack.Decoder(EngineRequest)


class EngineTiming(msgspec.Struct, frozen=True):
    """When the engine's process does what nobody asks it for."""

    flush_seconds: float = 1.0
    """How much a power cut may take; the kill of a process takes nothing."""
    idle_seconds: float = 5.0
    """How long there must be no request before it tidies up."""
    lock_seconds: float = 10.0
    """How long a former owner of the directory may take to be gone."""


class EngineServer:
    """Serves one engine to the owner at the other end of the socket."""

    def __init__(self, owner: socket.socket, engine: Engine, timing: EngineTiming) -> None:
        self._owner = owner
        self._engine = engine
        self._timing = timing
        self._flushed = time.monotonic()

    def serve(self) -> None:
        """Answers requests until it is told to close, or the owner is gone."""
        while True:
            if not self._wait_for_request():
                continue
            try:
                request = _request.decode(_read(self._owner))
            except EOFError:
                self._engine.close()
                return
            self._owner.sendall(frame(self._reply(request)))
            if request.operation == "close":
                return

    def _wait_for_request(self) -> bool:
        """Returns whether a request is there; if none comes for a while, does what is due."""
        self._flush_if_due()
        seconds = self._timing.flush_seconds if self._engine.dirty else self._timing.idle_seconds
        if select.select([self._owner], [], [], seconds)[0]:
            return True
        if self._engine.dirty:
            self._flush_if_due()
        elif self._engine.untidy:
            self._engine.vacuum()
        return False

    def _flush_if_due(self) -> None:
        if self._engine.dirty and time.monotonic() - self._flushed >= self._timing.flush_seconds:
            self._engine.flush()
            self._flushed = time.monotonic()

    def _reply(self, request: EngineRequest) -> EngineReply:
        try:
            value = self._engine.do(request.operation, request.arguments)
        except CollectionGone as error:
            return EngineReply(request.number, failure=str(error), gone=True)
        except Exception as error:
            # The engine raises bare exceptions; what they mean is for the owner to decide.
            return EngineReply(request.number, failure=f"{type(error).__name__}: {error}")
        return EngineReply(request.number, msgspec.Raw(msgspec.msgpack.encode(value)))


def _read(owner: socket.socket) -> bytes:
    """Reads the body of one frame. Raises EOFError when the owner is gone, or does not speak as it should."""
    (length,) = LENGTH.unpack(_exactly(owner, LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise EOFError
    return _exactly(owner, length)


def _exactly(owner: socket.socket, size: int) -> bytes:
    """Reads as many bytes. Raises EOFError when the owner is gone."""
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


def _lock(directory: Path, seconds: float) -> IO[bytes]:
    """Takes the directory's lock, which is held while the returned file is open.

    Raises IndexRefused when another process holds it for longer than `seconds`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    file = (directory / _LOCK).open("a+b")
    until = time.monotonic() + seconds
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
    """Has the kernel end this process with its parent, also in the middle of long work.

    Nothing is lost by that: the engine's log keeps what was acknowledged.
    """
    # A terminal's interrupt is for the owner, which then closes this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main(arguments: list[str]) -> None:
    """Opens the directory and serves it. Arguments: the socket's handle, the owner's pid, the directory, the timing."""
    handle, parent, directory, encoded = arguments
    _die_with(int(parent))
    owner = socket.socket(fileno=int(handle))
    timing = msgspec.json.decode(encoded, type=EngineTiming)
    try:
        lock = _lock(Path(directory), timing.lock_seconds)
        engine = Engine(Path(directory))
    except IndexRefused as error:
        owner.sendall(frame(Hello(failure=str(error))))
        sys.exit(1)
    except Exception as error:
        # Files that the engine cannot read: a bare exception too.
        owner.sendall(frame(Hello(failure=f"{directory} cannot be opened: {error}")))
        sys.exit(1)
    with lock:
        owner.sendall(frame(Hello()))
        EngineServer(owner, engine, timing).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
