"""Stops code that computes too long, from within, so that its variables survive; the outside kills what resists."""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

_REPEAT_SECONDS = 0.05
"""Seconds until the exception is raised once more, in code that caught it."""

_MIN_GAP_SECONDS = 0.03
"""Seconds between two exceptions: both limits may be over at once, and the second shall not meet us tidying up."""

_LEAST_SECONDS = 0.001

T = TypeVar("T")


class Stopped(BaseException):
    """The code has used its time. It is no Exception: code that catches those shall not catch this."""

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
