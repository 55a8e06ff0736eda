"""A lock that lets urgent work go before background work."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class PriorityLock:
    """A lock with two queues: everybody in the urgent one goes before anybody in the other."""

    def __init__(self) -> None:
        self._busy = False
        self._urgent_queue: deque[asyncio.Future[None]] = deque()
        self._background_queue: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def urgent(self) -> AsyncIterator[None]:
        """Holds the lock, before all that hold it as `background`."""
        async with self._held(self._urgent_queue):
            yield

    @asynccontextmanager
    async def background(self) -> AsyncIterator[None]:
        """Holds the lock once nothing urgent waits."""
        async with self._held(self._background_queue):
            yield

    @asynccontextmanager
    async def _held(self, queue: deque[asyncio.Future[None]]) -> AsyncIterator[None]:
        await self._acquire(queue)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, queue: deque[asyncio.Future[None]]) -> None:
        if not self._busy:
            self._busy = True
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release()  # it was granted just now
            raise

    def _release(self) -> None:
        for queue in (self._urgent_queue, self._background_queue):
            while queue:
                granted = queue.popleft()
                if not granted.done():
                    granted.set_result(None)
                    return
        self._busy = False
