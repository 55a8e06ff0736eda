"""Bounds how many requests a process makes of one model at once; further ones wait here, first come, first served."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RequestSlots:
    """The slots of all models of a process, by the URL and the name of the model."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, str], asyncio.Semaphore] = {}
        self.waiting = 0
        """Requests that wait for a slot at the moment."""

    @asynccontextmanager
    async def slot(self, url: str, name: str, parallel: int | None) -> AsyncIterator[None]:
        """Waits for one of the model's `parallel` slots and holds it; None is no bound. Who asks first for a model
        sets their number."""
        if parallel is None:
            yield
            return
        slots = self._slots.setdefault((url.rstrip("/"), name), asyncio.Semaphore(parallel))
        self.waiting += 1
        try:
            await slots.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            slots.release()
