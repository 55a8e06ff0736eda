"""Carries a schedule out on a crew, and notes what was done to which process and when."""

import asyncio
import contextlib
import signal
import time
from contextlib import AsyncExitStack
from typing import NamedTuple

from chaos.crew import Crew
from chaos.executions import UNSAFE, read_executions
from chaos.schedule import Fault, Kind

_AMID_WITHIN = 3.0
"""Seconds that a strike waits for its victim to be in the middle of an effect."""
_LOOK_EVERY = 0.02

_GRACEFUL = {0, 1}
"""Exit statuses after SIGTERM: in full, and with something left that is delivered again."""


class Strike(NamedTuple):
    """A strike on one process; times are Unix seconds."""

    kind: Kind
    victim: str
    pid: int
    began: float
    ended: float
    """The time of its restart or continuation."""
    status: int | None = None
    """With which it ended after SIGTERM."""


class Strikes:
    """`done` and `troubles` grow while faults are carried out; a trouble is what a process must not do."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._locks = {name: asyncio.Lock() for name in crew.names}
        self.done: list[Strike] = []
        self.troubles: list[str] = []

    async def carry_out(self, faults: list[Fault]) -> None:
        """Returns when the last fault is over and every process is ready."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                tasks.create_task(self._at_its_time(fault, began))
        for name in self._crew.names:
            await self._must_be_ready(name)

    async def _at_its_time(self, fault: Fault, began: float) -> None:
        await asyncio.sleep(began + fault.at - time.monotonic())
        async with AsyncExitStack() as locks:
            for name in fault.victims:
                await locks.enter_async_context(self._locks[name])
            if not fault.early:
                await asyncio.gather(*map(self._settled, fault.victims))
            if fault.amid:
                await self._amid_an_effect(fault.victims[0])
            match fault.kind:
                case "kill":
                    await asyncio.gather(*(self._kill(name, fault.lasts) for name in fault.victims))
                case "pause":
                    await self._pause(fault.victims[0], fault.lasts)
                case "restart":
                    await self.restart(fault.victims)

    async def _kill(self, name: str, lasts: float) -> None:
        if not self._still_there(name):
            await self._crew.start(name)
            return
        began, pid = time.time(), self._crew.process(name).pid
        self._crew.signal(name, signal.SIGKILL)
        await self._crew.ended(name)
        await asyncio.sleep(lasts)
        await self._crew.start(name)
        self.done.append(Strike("kill", name, pid, began, time.time()))

    async def _pause(self, name: str, lasts: float) -> None:
        if not self._still_there(name):
            await self._crew.start(name)
            return
        began, pid = time.time(), self._crew.process(name).pid
        self._crew.signal(name, signal.SIGSTOP)
        await asyncio.sleep(lasts)
        self._crew.signal(name, signal.SIGCONT)
        self.done.append(Strike("pause", name, pid, began, time.time()))

    async def restart(self, names: tuple[str, ...]) -> None:
        """One after the other: SIGTERM, the exit awaited, started again, ready."""
        for name in names:
            if self._still_there(name):
                await self._stop(name)
            await self._crew.start(name)
            await self._must_be_ready(name)

    async def _stop(self, name: str) -> None:
        began, pid = time.time(), self._crew.process(name).pid
        self._crew.signal(name, signal.SIGTERM)
        try:
            status = await self._crew.ended(name)
        except TimeoutError as error:
            self.troubles.append(f"{error} of SIGTERM")
            self._crew.signal(name, signal.SIGKILL)
            status = await self._crew.ended(name)
        else:
            if status not in _GRACEFUL:
                self.troubles.append(f"{name} ended with status {status} after SIGTERM")
        self.done.append(Strike("restart", name, pid, began, time.time(), status))

    async def _must_be_ready(self, name: str) -> None:
        try:
            await self._crew.ready(name)
        except AssertionError as error:
            self.troubles.append(f"{name} does not become ready: {str(error)[:500]}")

    async def _settled(self, name: str) -> None:
        """Until the process is ready; one that died meanwhile is somebody else's to report."""
        if self._crew.is_running(name):
            with contextlib.suppress(AssertionError):
                await self._crew.ready(name)

    async def _amid_an_effect(self, name: str) -> None:
        """Until the executor has written down its next effect, whose call is still at work then."""
        mine, known = self._crew.process(name).pid, len(read_executions(self._crew.effects))
        deadline = time.monotonic() + _AMID_WITHIN
        while time.monotonic() < deadline:
            news = read_executions(self._crew.effects)[known:]
            if any(line.pid == mine and line.tool in UNSAFE for line in news):
                return
            known += len(news)
            await asyncio.sleep(_LOOK_EVERY)

    def _still_there(self, name: str) -> bool:
        if self._crew.is_running(name):
            return True
        self.troubles.append(f"{name} ended by itself, with status {self._crew.process(name).returncode}")
        return False
