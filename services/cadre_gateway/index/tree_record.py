"""The record of a tree in the streams: since when, until when, with which blobs, or when it was erased. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted
from cadre.protocol.messages import Erased, Task
from cadre.views.run_summary import end_state, starts_no_run


class EntryStatus(Enum):
    """The effect of an entry or a file on its tree."""

    CURRENT = auto()
    """It belongs to a tree that is there."""
    ERASED = auto()
    """It was written before its tree was erased."""
    LATE = auto()
    """Its tree was erased before, or never was: the writer was late."""


class Tombstone(NamedTuple):
    """That a tree was erased."""

    seq: int
    """Sequence of the record that says so."""
    at: float


class TreeRecord:
    """All that is known of one tree, from its entries, files and lifecycles in stream order; the same one again changes
    nothing."""

    def __init__(self, tree: str) -> None:
        self.tree = tree
        self.seq = 0
        """Sequence of the newest entry, file or lifecycle that this follows from."""
        self.floor = 0
        """Nothing up to this sequence counts any more, regardless of what happens to the tree later."""
        self.ended_at: float | None = None
        """The time when the end of its root was stored here, in Unix seconds."""
        self.unstarted_at: float | None = None
        """The time when its first file was stored, as long as there are only files."""
        self.blobs: list[str] = []
        """The blobs that it references."""
        self.erased: Tombstone | None = None
        self.new_blobs: dict[str, int] = {}
        """Those of them that came since they were last saved, with the sequence of what names them."""

    @property
    def last(self) -> int:
        """Return the sequence of the newest entry or file; 0 for a tree that is not there."""
        return self.seq if self.seq > self.floor else 0

    @property
    def head(self) -> tuple[int, int, float | None, float | None, float | None]:
        """Return its row, without its name."""
        erased_at = self.erased.at if self.erased is not None else None
        return self.seq, self.floor, self.ended_at, self.unstarted_at, erased_at

    def add_entry(self, seq: int, entry: Entry, refs: Iterable[str], at: float) -> EntryStatus:
        """Take in the entry at `seq`, which references the blobs `refs` and was stored at `at` (Unix seconds)."""
        if seq <= self.floor:
            return EntryStatus.ERASED
        if self.erased is not None:
            if not restarts(entry, self.erased):
                return EntryStatus.LATE
            self.erased = None
        is_new = not self.last or self.unstarted_at is not None
        if is_new and starts_no_run(entry):
            return EntryStatus.LATE
        if seq <= self.last:
            return EntryStatus.CURRENT
        self._update(seq, refs)
        self.unstarted_at = None
        if end_state(entry, self.tree) and self.ended_at is None:
            self.ended_at = at
        return EntryStatus.CURRENT

    def awaits(self, seq: int, task: Task) -> bool:
        """Return whether the task at `seq` is one of a run that can begin: its tree was not erased since."""
        return seq > self.floor and (self.erased is None or task.at > self.erased.at)

    def add_file(self, seq: int, refs: Iterable[str], at: float) -> EntryStatus:
        """Take in a file of the tree's workspace, which may be there before the tree's first entry."""
        if seq <= self.floor:
            return EntryStatus.ERASED
        if self.erased is not None:
            return EntryStatus.LATE
        if not self.last:
            self.unstarted_at = at
        self._update(seq, refs)
        return EntryStatus.CURRENT

    def add_unreadable(self, seq: int, refs: Iterable[str]) -> None:
        """Take in an entry that another version wrote, so that its blobs are not lost."""
        if self.erased is None and seq > self.floor:
            self._update(seq, refs)

    def erase(self, seq: int, lifecycle: Erased) -> bool:
        """Take in that the tree was erased by the record at `seq`; returns false when that was known, or something
        of it came later."""
        if seq <= self.floor or seq < self.last:
            return False
        self.seq = seq
        self.erased = Tombstone(seq, lifecycle.at)
        return True

    def restore(self, seq: int) -> None:
        """Take in that the tree was imported by the record at `seq`: what follows belongs to it."""
        if self.erased is not None and seq > self.floor:
            self.seq = self.floor = seq
            self.erased = None

    def forget(self) -> list[str]:
        """Forget what there was of the tree, for good; returns the blobs that it referenced."""
        blobs, self.blobs, self.new_blobs = self.blobs, [], {}
        self.floor, self.ended_at, self.unstarted_at = self.seq, None, None
        return blobs

    def _update(self, seq: int, refs: Iterable[str]) -> None:
        self.seq = max(self.seq, seq)
        for blob in map(sys.intern, refs):  # all trees of an agent name its prompts
            if blob not in self.blobs:
                self.blobs.append(blob)
                self.new_blobs[blob] = seq


def restarts(entry: Entry, tombstone: Tombstone) -> bool:
    """Return whether this entry is the first of a run that was requested again after the run of its id was erased."""
    return entry.run == entry.tree and any(
        isinstance(event, RunAccepted) and event.task.at > tombstone.at for event in entry.events
    )
