"""One at a time, those who are asked for now before those who may wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A lock with two lines: whoever stands in the first goes before everybody in the other."""

    def __init__(self) -> None:
        self._busy = False
        self._first: deque[asyncio.Future[None]] = deque()
        self._later: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def first(self) -> AsyncIterator[None]:
        async with self._turn(self._first):
            yield

    @asynccontextmanager
    async def later(self) -> AsyncIterator[None]:
        async with self._turn(self._later):
            yield

    @asynccontextmanager
    async def _turn(self, line: deque[asyncio.Future[None]]) -> AsyncIterator[None]:
        await self._take(line)
        try:
            yield
        finally:
            self._give_on()

    async def _take(self, line: deque[asyncio.Future[None]]) -> None:
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_on()  # it was given just now
            raise

    def _give_on(self) -> None:
        for line in (self._first, self._later):
            while line:
                turn = line.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._busy = False
