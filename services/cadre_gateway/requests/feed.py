"""A bounded buffer between what happens live and one reader who may be slow."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

BUFFER = 1024


class Feed(Generic[T]):
    """A bounded buffer between a live source and one slow reader; it never holds the source up."""

    def __init__(self, limit: int = BUFFER) -> None:
        self._items: deque[T] = deque()
        self._limit = limit
        self._news = asyncio.Event()
        self.overflowed = False
        """Something that may not be lost found no room: read it from the stream instead."""
        self.closed = False

    def put(self, item: T, *, may_be_lost: bool = False) -> None:
        if len(self._items) < self._limit:
            self._items.append(item)
        elif not may_be_lost:
            self.overflowed = True
        self._news.set()

    def clear(self) -> None:
        self._items.clear()
        self.overflowed = False

    def close(self) -> None:
        """The source ends; what is in the buffer is still read."""
        self.closed = True
        self._news.set()

    async def take(self, within: float) -> list[T]:
        """All that has come, as soon as there is something; [] after `within` seconds, and at the end."""
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
