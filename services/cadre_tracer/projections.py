"""The projections of runs at hand: they give the spans that end with an entry, and read the entries before it."""

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

MAX_RUNS = 4096

MAX_RUNS_WITH_CONTENT = 512
"""The same when each holds what its model reads."""


class Journals(Protocol):
    """What has been written of runs."""

    async def read_run(self, tree: str, run: str, after: int = 0) -> list[Stored]:
        """The run's entries behind sequence `after`; the newest ones may still be missing. Raises BusUnavailable."""
        ...


class _FoldedRun:
    """A run, folded up to the entry at `seq`."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        self.seq = 0
        self.lock = asyncio.Lock()

    def apply(self, stored: Stored) -> list[SpanRecord]:
        self.seq = stored.seq
        return self.projection.apply(stored.entry)


class Projections:
    """Keeps the projections of at most MAX_RUNS runs, forgetting the least recently used: journals give them back."""

    def __init__(self, journals: Journals, *, content: bool) -> None:
        self._journals = journals
        self._content = content
        self._held = Recent[str, _FoldedRun](MAX_RUNS_WITH_CONTENT if content else MAX_RUNS)

    async def spans(self, stored: Stored, *, patient: bool = True) -> list[SpanRecord]:
        """Returns the spans that end with this entry: the same ones whenever and wherever they are asked for.

        Raises BusUnavailable, with `patient` also while entries before this one cannot be read yet.
        """
        entry = stored.entry
        held = self._get(entry)
        async with held.lock:
            if entry.n <= held.projection.entries:
                # It comes again: folded anew up to it.
                held = _FoldedRun(self._new(entry))
            if entry.n > held.projection.entries + 1:
                await self._catch_up(held, stored)
            if patient and entry.n != held.projection.entries + 1:
                missing = f"entry {held.projection.entries + 1} is not there yet"
                raise BusUnavailable(f"reading run {entry.run}", missing)
            return held.apply(stored)

    def forget_tree(self, tree: str) -> None:
        """Forgets the runs of a tree that was erased."""
        for run in [run for run, held in self._held.items() if held.projection.tree == tree]:
            del self._held[run]

    def _get(self, entry: Entry) -> _FoldedRun:
        held = self._held.get(entry.run) or _FoldedRun(self._new(entry))
        self._held[entry.run] = held
        return held

    def _new(self, entry: Entry) -> Projection:
        return Projection(entry.tree, entry.run, content=self._content)

    async def _catch_up(self, held: _FoldedRun, stored: Stored) -> None:
        """Applies the entries before this one; their spans are exported by the tracers that were delivered those."""
        entry = stored.entry
        for one in await self._journals.read_run(entry.tree, entry.run, held.seq):
            if one.seq >= stored.seq:
                return
            held.apply(one)
