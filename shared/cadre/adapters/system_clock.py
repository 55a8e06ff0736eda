"""The clock of the real world, in Unix seconds."""

import asyncio
import time


class SystemClock:
    """The system's clock (ports.Clock)."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
