"""Write as JSON lines what a process and its children print past the log, and their traceback when they hang.

`cadre.telemetry.logs` runs this as a script, a process without Cadre: what another one prints last before it dies is
read here all the same. It ends once nothing can write to it.
"""

import contextlib
import fcntl
import json
import os
import re
import selectors
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

MOST_LINE_BYTES = 1 << 20
"""A longer line comes in pieces."""

_QUIET_SECONDS = 0.2
"""After which a traceback is whole."""

_READ_BYTES = 1 << 16

_FRAME = re.compile(r'^ *File "(.*)", line (\d+|\?\?\?) in (.*)$')

_BREAKS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that some readers take for the end of a line, although JSON does not escape it."""


def line_of(found: dict[str, Any]) -> str:
    """Return the object as JSON on one line, without its end."""
    line = json.dumps(found, ensure_ascii=False, default=str)
    for character, escaped in _BREAKS.items():
        if character in line:
            line = line.replace(character, escaped)
    return line


def time_of(at: float) -> str:
    """Return a time in Unix seconds as lines have it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


@contextlib.contextmanager
def sole_writer(file: Any) -> Iterator[None]:
    """Keep other processes that ask for this from writing to the file, an object or a descriptor: a long line reaches a
    pipe in pieces."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX)
    except (OSError, TypeError, ValueError):
        yield  # none, a closed one, or one without locks
        return
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)


class _Writer:
    """Writes lines to stderr under the names of the process whose output they are."""

    def __init__(self, service: str, instance: str) -> None:
        self._names = {"service": service, "instance": instance}

    def say(self, level: str, logger: str, message: str, **more: Any) -> None:
        about = {"time": time_of(time.time()), "level": level, "logger": logger, "message": message}
        line = f"{line_of({**about, **self._names, **more})}\n".encode(errors="backslashreplace")
        with sole_writer(2):
            while line:
                line = line[os.write(2, line) :]


class _Printed:
    """The lines that come by one pipe."""

    pause: float | None = None
    """Seconds of silence after which what has come is whole."""

    def __init__(self, writer: _Writer, level: str, logger: str) -> None:
        self._writer, self._level, self._logger = writer, level, logger
        self._begun = b""

    def take(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._say(line)
        while len(self._begun) > MOST_LINE_BYTES:
            self._say(self._begun[:MOST_LINE_BYTES])
            self._begun = self._begun[MOST_LINE_BYTES:]

    def end(self) -> None:
        self._say(self._begun)
        self._begun = b""

    def _say(self, line: bytes) -> None:
        if text := line.decode(errors="replace").rstrip():
            self._writer.say(self._level, self._logger, text)


class _Traceback:
    """The traceback that `faulthandler` writes about a process that hangs."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer
        self._text = b""

    @property
    def pause(self) -> float | None:
        return _QUIET_SECONDS if self._text else None

    def take(self, data: bytes) -> None:
        self._text += data

    def end(self) -> None:
        if self._text:
            lines = self._text.decode(errors="replace").splitlines()
            stack = [_FRAME.sub(r"\1:\2 \3", line) for line in lines if line.strip()]
            message = "the event loop does not turn: the process ends"
            about = {"type": "Hang", "message": message, "stack": stack}
            self._writer.say("CRITICAL", "cadre.service", message, exception=about)
            self._text = b""


def main(service: str, instance: str, printed: int, errors: int, hanging: int) -> None:
    """Read the three pipes to their ends."""
    writer = _Writer(service, instance)
    readers: dict[int, _Printed | _Traceback] = {
        printed: _Printed(writer, "INFO", "stdout"),
        errors: _Printed(writer, "ERROR", "stderr"),
        hanging: _Traceback(writer),
    }
    with selectors.DefaultSelector() as selector:
        for descriptor in readers:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            found = selector.select(readers[hanging].pause)
            if not found:
                readers[hanging].end()
            for key, _ in found:
                if data := os.read(key.fd, _READ_BYTES):
                    readers[key.fd].take(data)
                else:
                    readers[key.fd].end()
                    selector.unregister(key.fd)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_blocking(2, True)  # another process that has the same file may have changed that
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
