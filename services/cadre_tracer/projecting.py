"""The spans that end with an entry, whichever entries of its run this process has seen: the rest is read."""

import asyncio
import logging
from typing import Protocol

from cadre.errors import BusUnavailable
from cadre.journal.entry import Entry
from cadre.ports import Stored
from cadre.recent import Recent
from cadre.telemetry.tracing.projection import Projection
from cadre.telemetry.tracing.spans import SpanRecord

log = logging.getLogger("cadre.tracer")

MOST_RUNS = 4096

MOST_WITH_CONTENT = 512
"""The same when each holds what its model reads."""


class Journals(Protocol):
    """What has been written of runs."""

    async def read_run(self, tree: str, run: str, after: int = 0) -> list[Stored]:
        """The run's entries behind sequence `after`; the newest ones may still be missing. Raises BusUnavailable."""
        ...


class _Held:
    """A run, folded up to the entry at `seq`."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        self.seq = 0
        self.lock = asyncio.Lock()

    def apply(self, stored: Stored) -> list[SpanRecord]:
        self.seq = stored.seq
        return self.projection.apply(stored.entry)


class Projections:
    """At most so many runs, the least recently used forgotten first: their journals tell them again."""

    def __init__(self, journals: Journals, *, content: bool) -> None:
        self._journals = journals
        self._content = content
        self._held = Recent[str, _Held](MOST_WITH_CONTENT if content else MOST_RUNS)

    async def spans(self, stored: Stored, *, patient: bool = True) -> list[SpanRecord]:
        """Those that end with this entry: the same ones whenever and wherever they are asked for.

        Raises BusUnavailable, with `patient` also while entries before this one cannot be read yet.
        """
        entry = stored.entry
        held = self._get(entry)
        async with held.lock:
            if entry.n <= held.projection.entries:
                # It comes again: folded anew up to it.
                held = _Held(self._new(entry))
            if entry.n > held.projection.entries + 1:
                await self._catch_up(held, stored)
            if patient and entry.n != held.projection.entries + 1:
                missing = f"entry {held.projection.entries + 1} is not there yet"
                raise BusUnavailable(f"reading run {entry.run}", missing)
            return held.apply(stored)

    def forget_tree(self, tree: str) -> None:
        for run in [run for run, held in self._held.items() if held.projection.tree == tree]:
            del self._held[run]

    def _get(self, entry: Entry) -> _Held:
        held = self._held.get(entry.run) or _Held(self._new(entry))
        self._held[entry.run] = held
        return held

    def _new(self, entry: Entry) -> Projection:
        return Projection(entry.tree, entry.run, content=self._content)

    async def _catch_up(self, held: _Held, stored: Stored) -> None:
        """Applies the entries before this one; their spans are the business of whom those were delivered to."""
        entry = stored.entry
        for one in await self._journals.read_run(entry.tree, entry.run, held.seq):
            if one.seq >= stored.seq:
                return
            held.apply(one)
