"""Clock and chance of a block: the first is recorded and replayed, the second follows from the block's seed.

Recorded are `time.time`, `time_ns`, `localtime`, `gmtime`, `ctime`, `strftime`, `datetime.now`, `utcnow`, `today` and
`date.today`, up to a number of readings between two yields; `monotonic`, `perf_counter` and similar clocks are
unchanged. Seeded are `random`, `os.urandom`, and what builds on them: `uuid`, `secrets`, numpy's generators.
"""

import contextlib
import ctypes
import datetime
import gc
import hashlib
import os
import random
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cadre_sandbox.wire.values import MAX_CLOCK_READINGS

_real_time = time.time
_real_urandom = os.urandom


class RecordedClock:
    """A clock whose readings in one block are replayed, then recorded."""

    def __init__(self) -> None:
        self._tape: deque[float] = deque()
        self._read: list[float] = []

    def start(self, tape: Sequence[float]) -> None:
        """Replay these readings before reading the real clock."""
        self._tape = deque(tape)
        self._read = []

    def now(self) -> float:
        """Unix seconds: the next recorded reading, else those of the real clock."""
        if self._tape:
            return self._tape.popleft()
        now = _real_time()
        if len(self._read) < MAX_CLOCK_READINGS:
            self._read.append(now)
        return now

    def take(self) -> list[float]:
        """Return the readings of the real clock since the last time."""
        taken, self._read = self._read, []
        return taken


clock = RecordedClock()


def install() -> None:
    """Put the recorded clock and the seeded chance in the place of Python's own, for the whole process. Called once, in
    the zygote."""
    time.time = clock.now
    time.time_ns = lambda: int(clock.now() * 1e9)
    _of_now("localtime", "gmtime", "ctime")
    _format_now()
    _seed_by_stream()
    # A library of the system, with its own clock and chance.
    uuid._generate_time_safe = None  # type: ignore[attr-defined]

    def now(kind: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return kind.fromtimestamp(clock.now(), tz)

    def utcnow(kind: type[datetime.datetime]) -> datetime.datetime:
        return kind.fromtimestamp(clock.now(), datetime.UTC).replace(tzinfo=None)

    def today(kind: type[datetime.date]) -> datetime.date:
        return kind.fromtimestamp(clock.now())

    _replace(datetime.datetime, now=now, utcnow=utcnow, today=today)
    _replace(datetime.date, today=today)


def _of_now(*names: str) -> None:
    """Have these functions of `time` mean the recorded now when no seconds are given."""
    for name in names:
        real = getattr(time, name)
        setattr(time, name, lambda secs=None, /, real=real: real(clock.now() if secs is None else secs))


def _format_now() -> None:
    real = time.strftime

    def strftime(form: str, moment: Any = None, /) -> str:
        return real(form, time.localtime() if moment is None else moment)

    time.strftime = strftime


def _seed_by_stream() -> None:
    """Make an unseeded generator take its seed from os.urandom; by default it asks the kernel."""
    real = random.Random.seed

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        real(self, os.urandom(32) if a is None else a, version)

    random.Random.seed = seed  # type: ignore[method-assign]
    random.seed = random._inst.seed


def _replace(kind: type, **methods: Callable[..., Any]) -> None:
    """Replace class methods in place: the classes are immutable from Python, and libraries hold them by reference."""
    (attributes,) = gc.get_referents(kind.__dict__)
    for name, method in methods.items():
        attributes[name] = classmethod(method)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


class _SeededBytes:
    """A source of random bytes that follow from a seed, in place of the kernel's."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._blocks = 0

    def __call__(self, size: int, /) -> bytes:
        data = b""
        while len(data) < size:
            data += hashlib.blake2b(self._blocks.to_bytes(8), key=self._seed).digest()
            self._blocks += 1
        return data[:size]


def seed(text: str) -> None:
    """Seed everything that is random in the block to come."""
    digest = hashlib.blake2b(text.encode(), digest_size=32).digest()
    stream = _SeededBytes(digest)
    os.urandom = stream
    random._urandom = stream  # type: ignore[attr-defined]
    random.seed(digest)
    uuid._node = int.from_bytes(digest[:6])  # type: ignore[attr-defined]
    if "numpy.random" in sys.modules:
        seed_numpy(digest)


@contextlib.contextmanager
def true_chance() -> Iterator[None]:
    """Use the kernel's randomness within, for what must not come out the same in two blocks, such as ids of saved
    classes."""
    seeded, os.urandom = os.urandom, _real_urandom
    try:
        yield
    finally:
        os.urandom = seeded


def seed_numpy(digest: bytes) -> None:
    """Seed numpy's own generator, which does not ask os.urandom again."""
    sys.modules["numpy.random"].seed(int.from_bytes(digest[:4]))
