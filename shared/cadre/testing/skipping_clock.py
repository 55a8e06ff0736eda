"""A clock that can be moved on: what waits for a time goes on at once, whether that is a second or a month away."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class _Alarm(NamedTuple):
    due: float
    number: int
    callback: Callable[[], None]


class SkippingClock:
    """ports.Clock: the machine's time and what was skipped of it, in Unix seconds."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self._alarms: list[_Alarm] = []
        self._numbers = itertools.count()
        self._cancelled: set[int] = set()
        self._handle: asyncio.TimerHandle | None = None
        self.sleeping: set[asyncio.Task[Any]] = set()
        """The tasks that sleep on this clock."""
        self.on_sleep: Callable[[], None] = lambda: None
        """Called when a task begins to sleep."""

    def now(self) -> float:
        return time.time() + self._skipped

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.current_task()
        assert task is not None

        def wake() -> None:
            self.sleeping.discard(task)  # from now on: it has work to do, though it has not gone on yet
            if not woken.done():
                woken.set_result(None)

        number = self.at(self.now() + seconds, wake)
        self.sleeping.add(task)
        self.on_sleep()
        try:
            await woken
        finally:
            self.sleeping.discard(task)
            self.cancel(number)

    def at(self, due: float, callback: Callable[[], None]) -> int:
        """Calls back at `due`; the number that is returned cancels that."""
        alarm = _Alarm(due, next(self._numbers), callback)
        heapq.heappush(self._alarms, alarm)
        self._set()
        return alarm.number

    def cancel(self, number: int) -> None:
        if any(alarm.number == number for alarm in self._alarms):
            self._cancelled.add(number)

    def skip(self, seconds: float) -> None:
        """Move the clock on; what became due is called back, in its order."""
        self._skipped += seconds
        self._fire()

    def skip_to_next(self) -> bool:
        """Move the clock on to what is due next; False when nothing is to come."""
        if (left := self.next_in()) is None:
            return False
        self.skip(left)
        return True

    def next_in(self) -> float | None:
        """Seconds until what is due next; None when nothing is to come."""
        self._drop_cancelled()
        return max(0.0, self._alarms[0].due - self.now()) if self._alarms else None

    def stop(self) -> None:
        """Call nothing back any more."""
        self._alarms.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _fire(self) -> None:
        while True:
            self._drop_cancelled()
            if not self._alarms or self._alarms[0].due > self.now() + 1e-6:
                break
            heapq.heappop(self._alarms).callback()
        self._set()

    def _set(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._alarms:
            delay = max(0.0, self._alarms[0].due - self.now())
            # The event loop takes no time further away than its own clock can tell.
            self._handle = asyncio.get_running_loop().call_later(min(delay, 86_400), self._fire)

    def _drop_cancelled(self) -> None:
        while self._alarms and self._alarms[0].number in self._cancelled:
            self._cancelled.discard(heapq.heappop(self._alarms).number)
