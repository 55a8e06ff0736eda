"""Keep many deadlines behind one timer.

Most deadlines are cancelled long before they expire. With a timer for each, the cancelled ones would fill the heap of
the event loop until their times have passed."""

import asyncio
from collections.abc import Callable, Hashable


class Deadlines:
    """The deadlines of one event loop, each under its own key."""

    def __init__(self) -> None:
        self._open: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        """The time at which the timer fires. It is kept here because uvloop's handle for immediate calls does not have
        it."""

    def add(self, key: Hashable, seconds: float, on_expiry: Callable[[], object]) -> None:
        """Have `on_expiry` called in so many seconds, unless the key is removed before."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        self._open[key] = (due, on_expiry)
        if self._timer is None or due < self._due:
            self._arm(loop, due)

    def remove(self, key: Hashable) -> None:
        """Forget the key; the timer stays, and finds nothing to do."""
        self._open.pop(key, None)

    def _arm(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = loop.call_at(due, self._expire), due

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer, now = None, loop.time()
        expired = [(key, on_expiry) for key, (due, on_expiry) in self._open.items() if due <= now]
        for key, on_expiry in expired:
            del self._open[key]
            on_expiry()
        if self._open:
            self._arm(loop, min(due for due, _ in self._open.values()))
