"""Say with which entries a tree of runs, or a part of it, is ready to be sent at once: pure, so that every tracer finds
the same parts at any time."""

from typing import NamedTuple

import msgspec

from cadre.journal.entry import Entry
from cadre.journal.events import RunFinished
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.spans import SpanRecord

PART_SECONDS = 24 * 3600.0
"""Age at which a run ends a part of its tree, and again after each such time."""

PART_ENTRIES = 2000
"""Entries of one run after which it ends a part of its tree, and again after so many more."""


class TreePart(NamedTuple):
    """The spans that end with the entries behind `after`, up to the one that ends the part."""

    number: int
    """From 1."""
    after: int
    """Stream sequence of the entry that ended the part before; 0 for the first part."""
    is_last: bool
    """No run of the tree is open."""

    @property
    def is_whole(self) -> bool:
        """Return whether the part is the whole tree."""
        return self.number == 1 and self.is_last

    def mark(self, span: SpanRecord) -> SpanRecord:
        """Return the span with the number of its part, unless the tree is whole."""
        if self.is_whole:
            return span
        return msgspec.structs.replace(span, attributes={**span.attributes, names.TRACE_PART: self.number})


def may_end_part(entry: Entry, began: float) -> bool:
    """Return whether an entry can end a part of its tree; `began` is the time of its run's first entry."""
    return _finishes(entry) or entry.n % PART_ENTRIES == 0 or entry.at - began >= PART_SECONDS


class TreeParts:
    """The parts of one tree, as far as its entries were taken, in the order of their stream."""

    def __init__(self, tree: str) -> None:
        self._tree = tree
        self._runs: dict[str, tuple[float, float, int]] = {}
        """By run: the times of its first and its last entry, and the position of the last one."""
        self._open: set[str] = {tree}
        self._ends: dict[int, TreePart] = {}
        self.seq = 0
        """Stream sequence of the last entry."""

    def ended_by(self, seq: int) -> TreePart | None:
        """Return the part that the entry at this sequence ends; None for an entry that ends none."""
        return self._ends.get(seq)

    def missing_before(self, entry: Entry) -> int | None:
        """Return the position of the first entry of the run that is missing before this one; None when none is."""
        last = self._runs[entry.run][2] if entry.run in self._runs else 0
        return last + 1 if entry.n > last + 1 else None

    def take(self, seq: int, entry: Entry) -> None:
        """Take the next entry."""
        self.seq = seq
        began, before, last = self._runs.get(entry.run, (entry.at, entry.at, 0))
        self._runs[entry.run] = (began, entry.at, entry.n)
        if last == 0:
            self._open.add(entry.run)
        is_last = False
        if _finishes(entry):
            self._open.discard(entry.run)
            is_last = not self._open
        days = (before - began) // PART_SECONDS, (entry.at - began) // PART_SECONDS
        if is_last or days[0] != days[1] or entry.n % PART_ENTRIES == 0:
            after = next(reversed(self._ends), 0)
            self._ends[seq] = TreePart(len(self._ends) + 1, after, is_last)


def _finishes(entry: Entry) -> bool:
    return any(isinstance(event, RunFinished) for event in entry.events)
