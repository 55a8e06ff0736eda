"""The state that lasts from block to block in a jailed interpreter: its end of the socket to the outside, what the code
prints, in bounded memory, and the stopwatch that stops code that computes too long."""

import io
import os
import signal
import sys
import time
import types
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeVar

from cadre_sandbox.jail import snapshot
from cadre_sandbox.jail.guard import Builtins
from cadre_sandbox.wire.frames import PREFIX, Frame, decode, encode

_READ_BYTES = 1 << 20


class Channel:
    """The socket by which the jailed interpreter is asked and answers: one frame in, one out."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def receive(self) -> Frame:
        """Return the next frame. Ends the process when the outside has closed its end."""
        text, body = PREFIX.unpack(self._read(PREFIX.size))
        return decode(self._read(text), self._read(body))

    def send(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        """Send a frame."""
        left = memoryview(encode(header, blobs))
        while left:
            left = left[os.write(self._descriptor, left) :]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = os.read(self._descriptor, min(_READ_BYTES, size - len(data)))
            if not piece:
                os._exit(0)
            data += piece
        return bytes(data)


class InterpreterState:
    """The variables of the code, and the interpreter's own data."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.printed = CapturedOutput()
        self.stopwatch = Stopwatch()
        self.builtins = Builtins()
        self.snapshots = snapshot.Snapshots(self.builtins.imported)
        self.reserve = b""
        """Memory that is freed when all of it is used, so that this can be reported."""
        self.last_digest = b""
        """Digest of the snapshot that was sent last."""

        # Its name makes picklers take the code's classes by value.
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self.namespace = vars(module)
        self.namespace["__builtins__"] = self.builtins.names
        snapshot.use_namespace(self.namespace)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of the text and a note between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return joined(text[:half], text[len(text) - half :], len(text) - 2 * half)


def joined(head: str, tail: str, missing: int) -> str:
    """Beginning and end of a text, with a note of how many characters are missing between them."""
    return f"{head}\n… [{missing} characters left out of the middle] …\n{tail}"


class CapturedOutput(io.TextIOBase):
    """Standard output and error of the jailed interpreter, bounded."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, limit: int) -> None:
        """Forget what was printed, and keep at most `limit` characters from now on."""
        self._half = limit // 2
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._dropped = 0

    def writable(self) -> bool:
        """Return whether it can be written to, as `print` asks."""
        return True

    def write(self, text: str, /) -> int:
        """Keep the text, or what fits of it; returns its characters."""
        text = str(text)
        fits = text[: self._half - self._head_size]
        if fits:
            self._head.append(fits)
            self._head_size += len(fits)
        if len(fits) < len(text):
            self._to_tail(text[len(fits) :])
        return len(text)

    def _to_tail(self, text: str) -> None:
        if len(text) > self._half:
            self._dropped += len(text) - self._half
            text = text[len(text) - self._half :]
        self._tail.append(text)
        self._tail_size += len(text)
        while self._tail_size > 2 * self._half:
            # Twice what is kept, so that not every small print moves the rest.
            first = self._tail.popleft()
            self._tail_size -= len(first)
            self._dropped += len(first)

    def text(self) -> str:
        """Return what was printed, with a note in the middle when some of it was left out."""
        tail = "".join(self._tail)
        missing = self._dropped + max(0, len(tail) - self._half)
        tail = tail[max(0, len(tail) - self._half) :]
        head = "".join(self._head)
        return joined(head, tail, missing) if missing else head + tail


_REPEAT_SECONDS = 0.05
"""Seconds until the exception is raised once more, in code that caught it."""

_MIN_GAP_SECONDS = 0.03
"""Seconds between two exceptions: both limits may be exceeded at once, and the second must not interrupt the
cleanup."""

_LEAST_SECONDS = 0.001

T = TypeVar("T")


class Stopped(BaseException):
    """The code has used its time. It is not an Exception, so that code that catches those does not catch this."""

    kind = "TimeLimit"


class TimeLimit(Stopped):
    """The seconds by the clock are used up."""


class CpuLimit(Stopped):
    """The CPU seconds of all threads are used up."""

    kind = "CpuLimit"


class Stopwatch:
    """Runs while the code computes, rests while it waits for a call."""

    def __init__(self) -> None:
        self._runner = False
        self._seconds = 0.0
        self._cpu = 0.0
        self._since = 0.0
        self._cpu_since = 0.0
        self._stopped = 0.0
        self._raised: Stopped | None = None

    def install(self) -> None:
        """Take the signals of the timers."""
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.signal(signal.SIGPROF, self._on_cpu)

    def reset(self, seconds: float, cpu_seconds: float) -> None:
        """Set the time that is left."""
        self._seconds, self._cpu = seconds, cpu_seconds

    def extend(self, seconds: float) -> None:
        """Leave at least this many seconds."""
        self._seconds = max(self._seconds, seconds)
        self._cpu = max(self._cpu, seconds)

    def run(self) -> None:
        """Let the time pass from now on."""
        self._since, self._cpu_since = time.monotonic(), time.process_time()
        self._runner = True
        signal.setitimer(signal.ITIMER_REAL, max(self._seconds, _LEAST_SECONDS), _REPEAT_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, max(self._cpu, _LEAST_SECONDS), _REPEAT_SECONDS)

    def rest(self) -> None:
        """Let no time pass until `run`."""
        self._runner = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._seconds -= time.monotonic() - self._since
        self._cpu -= time.process_time() - self._cpu_since

    def timed(self, work: Callable[[], T]) -> T:
        """Run the work on the time that is left, and return what it returns. Raises Stopped; the time rests then."""
        self._raised = None
        try:
            self.run()
            done = work()
        except BaseException:
            # Without a call before it: no further exception comes in between, however late this process is.
            self._runner = False
            self.rest()
            raise
        self._runner = False
        self.rest()
        if self._raised is not None:
            # Where Python ignores exceptions, in `__del__` for one, it ended nothing.
            raise self._raised
        return done

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        self._stop(TimeLimit())

    def _on_cpu(self, number: int, frame: FrameType | None) -> None:
        self._stop(CpuLimit())

    def _stop(self, why: Stopped) -> None:
        now = time.monotonic()
        if self._runner and now - self._stopped > _MIN_GAP_SECONDS:
            self._stopped = now
            self._raised = why
            raise why
