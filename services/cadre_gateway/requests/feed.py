"""A bounded buffer between a live source and one reader who may be slow."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_ITEMS = 256


class Feed(Generic[T]):
    """Buffers items for one reader; it never holds the source up."""

    def __init__(self, limit: int = MAX_ITEMS) -> None:
        self._items: deque[T] = deque()
        self._limit = limit
        self._news = asyncio.Event()
        self.overflowed = False
        """Whether an item that may not be lost found no room: it has to be read from the stream instead."""
        self.closed = False

    def put(self, item: T, *, may_be_lost: bool = False) -> None:
        """Adds an item; without room it is lost, and unless it may be, the feed has overflowed."""
        if len(self._items) < self._limit:
            self._items.append(item)
        elif not may_be_lost:
            self.overflow()
        self._news.set()

    def overflow(self) -> None:
        """Has the reader read the stream: something there was not put in here."""
        self.overflowed = True
        self._news.set()

    def clear(self) -> None:
        """Forgets the items, and that there were too many."""
        self._items.clear()
        self.overflowed = False

    def close(self) -> None:
        """Ends the feed; what is in the buffer can still be read."""
        self.closed = True
        self._news.set()

    async def take(self, within: float) -> list[T]:
        """All items as soon as there are any; [] after `within` seconds, and at the end."""
        if not self._items and not self.closed and not self.overflowed:
            self._news.clear()
            try:
                # Before Python 3.12 wait_for forgets a cancellation that comes together with the news.
                async with asyncio.timeout(within):
                    await self._news.wait()
            except TimeoutError:
                return []
        taken = list(self._items)
        self._items.clear()
        return taken
