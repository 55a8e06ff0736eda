"""In-memory ports for tests that need no process: a wire with faults, counted blobs."""

import asyncio
from collections import Counter
from collections.abc import Callable

from cadre.errors import BusUnavailable
from cadre.testing.in_memory_ports import InMemoryBlobs, Silence, T


class MemoryWire:
    """A way to the streams that fails when a test says so."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.failing_sends = 0
        """So many sends do not arrive."""
        self.lost_answers = 0
        """So many appends are stored, and their answers never come."""

    async def ask(self, doing: str, operation: Callable[[], T], silence: Silence) -> T:
        self.asked[doing] += 1
        await asyncio.sleep(0)
        if doing.startswith("sending") and self.failing_sends:
            self.failing_sends -= 1
            raise BusUnavailable("sending", "the test cut the wire")
        found = operation()
        if doing == "appending" and self.lost_answers:
            self.lost_answers -= 1
            raise silence(doing, "the test lost its answer")
        return found

    def post(self, operation: Callable[[], object], loss: str) -> None:
        operation()


class MemoryBlobs(InMemoryBlobs):
    """ports.Blobs, what is held, and how often it was asked for."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.wire = MemoryWire()
        super().__init__(self.wire, self.held)

    @property
    def puts(self) -> int:
        return self.wire.asked["storing a blob"]

    @property
    def gets(self) -> int:
        return self.wire.asked["reading a blob"]
