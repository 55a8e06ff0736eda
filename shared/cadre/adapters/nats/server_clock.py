"""Read the time of the NATS server, which every service of a deployment uses, or that of this machine.

Schedules fire by the server's clock, so a wait or a deadline that one process sets and another one compares must be
by that clock too. Between two measurements it continues with this machine's monotonic clock, which cannot be set.
"""

import asyncio
import logging
import time
from datetime import UTC, datetime

from nats.aio.client import Client

from cadre.adapters.nats.streams import jetstream

log = logging.getLogger("cadre.clock")

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps, where it can."""

_SAMPLES = 3
_CLOSE_SECONDS = 0.1
"""A difference below this is due to the network or the scheduler: no clock has moved."""
_SLOW_SECONDS = 1.0
"""An answer that took longer says too little of when it was given."""
_TOLD_STEP_SECONDS = 0.5


def _elapsed() -> float:
    return time.clock_gettime(_CLOCK)


class ServerClock:
    """The server's clock (ports.Clock); this machine's own until it was measured."""

    def __init__(self, limit: float) -> None:
        """`limit` is how far this machine's clock may be off, in seconds."""
        self._limit = limit
        self._offset: float | None = None
        self._told = 0.0

    def now(self) -> float:
        return time.time() if self._offset is None else time.clock_gettime(_CLOCK) + self._offset

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def skew(self) -> float:
        """Return the seconds that this machine's clock is ahead of the server's; it changes in steps, because it is
        passed on to others."""
        skew = time.time() - self.now()
        if abs(skew - self._told) >= _TOLD_STEP_SECONDS:
            self._told = round(skew, 1)
        return self._told

    def problem(self) -> str | None:
        """Return what is wrong with this machine's clock; None while it is within the limit."""
        if abs(self.skew) <= self._limit:
            return None
        here, there = (datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S") for at in (time.time(), self.now()))
        way = "ahead of" if self.skew > 0 else "behind"
        return (
            f"the clock of this machine is {abs(self.skew):g} s {way} that of the NATS server ({here} here, {there}"
            " there, UTC): set the wrong one right, or allow more with CADRE_CLOCK_SKEW_SECONDS"
        )

    async def measure(self, nc: Client, stream: str) -> None:
        """Ask the leader of the stream what time it is. Raises BusUnavailable."""
        was = self.problem()
        best: tuple[float, float] | None = None
        for _ in range(_SAMPLES if self._offset is None else 1):
            sent = _elapsed()
            answer = await jetstream.ask(nc, "asking for the time", f"STREAM.INFO.{stream}")
            took = _elapsed() - sent
            offset = datetime.fromisoformat(answer["ts"]).timestamp() - sent - took / 2
            if best is None or took < best[0]:
                best = took, offset
        assert best is not None
        took, offset = best
        known = self._offset
        if known is None or (took < _SLOW_SECONDS and abs(offset - known) > took / 2 + _CLOSE_SECONDS):
            self._offset = offset
        if (problem := self.problem()) is not None and was is None:
            log.error("%s", problem)


class SystemClock:
    """The system's clock (ports.Clock)."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
