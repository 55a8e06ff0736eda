"""The simulation's own parts in the ports of its processes: a clock that may be wrong, replicas that lag."""

import asyncio
from collections.abc import Callable
from typing import Any

from cadre.journal.entry import Entry
from cadre.ports import Appended, Stored
from cadre.testing.in_memory_ports import InMemoryJournal, KeptMessage, Reach, Stream
from simulation.faults import Faults
from simulation.loop import EPOCH, Loop, Process


class SimClock:
    """ports.Clock: virtual time, as the process's own clock shows it."""

    def __init__(self, loop: Loop, process: Process) -> None:
        self._loop, self._process = loop, process

    def now(self) -> float:
        return EPOCH + self._loop.time() + self._process.skew

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SimJournal(InMemoryJournal):
    """ports.Journal whose replicas may lag."""

    def __init__(self, reach: Reach, faults: Faults) -> None:
        super().__init__(reach)
        self._faults = faults
        self.before_append: Callable[[Entry], None] = lambda entry: None

    async def read(self, tree: str, run: str) -> list[Stored]:
        self._faults.note("journal-read")
        return await super().read(tree, run)

    async def last(self, tree: str, run: str) -> int:
        self._faults.note("journal-read")
        return await super().last(tree, run)

    async def append(self, entry: Entry, fence: int, **more: Any) -> Appended:
        self.before_append(entry)
        return await super().append(entry, fence, **more)

    def replica(self, stream: Stream[KeptMessage], wanted: list[int]) -> list[KeptMessage]:
        """The messages with these sequences, as far as a replica has them."""
        behind = self._faults.happens("stale-read")
        return super().replica(stream, wanted[: len(wanted) // 2] if behind else wanted)
