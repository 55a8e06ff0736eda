"""Waits for a replica of a stream that lags behind the leader, or behind what another replica has answered."""

import asyncio
from typing import Self

_PAUSE_SECONDS = 0.05


class ReplicaTries:
    """`async for _ in ReplicaTries(seconds)`: reads in the body are tried, with pauses between them, until the body
    leaves the loop or the time is up. Any replica may answer the next read."""

    def __init__(self, seconds: float) -> None:
        self._left = max(1, round(seconds / _PAUSE_SECONDS))
        self._begun = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        if self._begun:
            await asyncio.sleep(_PAUSE_SECONDS)
        self._begun = True
