"""All trees in the streams: when each ended, which blobs it references, and which were erased. Pure.

Unlike the list of runs it knows every tree, and so little of each that all of them fit.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from heapq import heapify, heappop, heappush

import msgspec

from cadre.journal.entry import Entry
from cadre.journal.events import RunAccepted
from cadre.protocol.fates import Erased
from cadre_gateway.index.run_summary import end_state, starts_no_run


class EntryStatus(Enum):
    """What an entry or a file means for its tree."""

    CURRENT = auto()
    """It belongs to a tree that is there."""
    ERASED = auto()
    """It was written before its tree was erased."""
    LATE = auto()
    """Its tree was erased before, or never was: the writer was late."""


class TreeRecord(msgspec.Struct, array_like=True):
    """A tree that is in the streams."""

    tree: str
    last: int
    """Sequence of its newest known entry."""
    ended_at: float | None = None
    """When the end of its root was stored here, in Unix seconds."""
    blobs: list[str] = []


class PendingErasure(msgspec.Struct, array_like=True):
    """An erased tree of which something may be left in the streams."""

    tree: str
    before: int
    """Sequence of the record that it was erased: everything of the tree below it goes."""
    due: float
    """Unix seconds from which this gateway may do it: until then it is left to the gateway that erased the tree."""
    expired: bool
    blobs: list[str] = []
    """The blobs that were known to be the tree's."""


class Tombstone(msgspec.Struct, array_like=True):
    """A tree that was erased."""

    tree: str
    seq: int
    """Sequence of the record that says so."""
    at: float


class SavedRecords(
    msgspec.Struct,
    kw_only=True,
    rename={
        "trees": "holdings",
        "pending_erasures": "erasing",
        "postponed_blobs": "left",
        "late_trees": "ghosts",
        "unstarted_trees": "unbegun",
    },
):
    """TreeRecords in the form in which they are saved."""

    trees: list[TreeRecord] = []
    tombstones: list[Tombstone] = []
    pending_erasures: list[PendingErasure] = []
    late_trees: dict[str, int] = {}
    postponed_blobs: dict[str, float] = {}
    unstarted_trees: dict[str, float] = {}


class TreeRecords:
    """Built from entries and fates in stream order; the same one again changes nothing."""

    def __init__(self, saved: SavedRecords | None = None) -> None:
        saved = saved or SavedRecords()
        self._trees = {record.tree: record for record in saved.trees}
        self._tombstones = {one.tree: one for one in saved.tombstones}
        """Erased trees by name, in the order of their erasure."""
        self.pending_erasures = {one.tree: one for one in saved.pending_erasures}
        """Erased trees whose remains are still to be removed, in the order in which they were erased."""
        self.postponed_blobs = dict(saved.postponed_blobs)
        """Blobs of removed trees that were too young to go, by the time from which they may."""
        self.late_trees = dict(saved.late_trees)
        """Trees of which something came late, with the sequence of the last of it."""
        self.unstarted_trees = dict(saved.unstarted_trees)
        """Trees of which there are files only, by the time when the first of them was stored."""
        self._references = Counter(blob for record in saved.trees for blob in record.blobs)
        self._ends = [(one.ended_at, one.tree) for one in saved.trees if one.ended_at is not None]
        heapify(self._ends)

    def __len__(self) -> int:
        return len(self._trees)

    def to_saved(self) -> SavedRecords:
        """All of it, to be saved and handed to the constructor later."""
        return SavedRecords(
            trees=list(self._trees.values()),
            tombstones=list(self._tombstones.values()),
            pending_erasures=list(self.pending_erasures.values()),
            late_trees=self.late_trees,
            postponed_blobs=self.postponed_blobs,
            unstarted_trees=self.unstarted_trees,
        )

    def add_entry(self, seq: int, entry: Entry, refs: Iterable[str], at: float) -> EntryStatus:
        """Takes in the entry at `seq`, which references the blobs `refs` and was stored at `at` (Unix seconds)."""
        tombstone = self._tombstones.get(entry.tree)
        if tombstone is not None:
            if seq < tombstone.seq:
                return EntryStatus.ERASED
            if not _restarts(entry, tombstone):
                return self._late(entry.tree, seq)
            del self._tombstones[entry.tree]
        is_new = entry.tree not in self._trees or entry.tree in self.unstarted_trees
        if is_new and starts_no_run(entry):
            return self._late(entry.tree, seq)
        known = self._trees.get(entry.tree)
        if known is not None and seq <= known.last:
            return EntryStatus.CURRENT
        record = self._update(seq, entry.tree, refs)
        self.unstarted_trees.pop(entry.tree, None)
        if end_state(entry, entry.tree) and record.ended_at is None:
            record.ended_at = at
            heappush(self._ends, (at, entry.tree))
        return EntryStatus.CURRENT

    def add_file(self, seq: int, tree: str, refs: Iterable[str], at: float) -> EntryStatus:
        """Takes in a file of a tree's workspace, which may be there before the tree's first entry."""
        tombstone = self._tombstones.get(tree)
        if tombstone is not None:
            return EntryStatus.ERASED if seq < tombstone.seq else self._late(tree, seq)
        if tree not in self._trees:
            self.unstarted_trees[tree] = at
        self._update(seq, tree, refs)
        return EntryStatus.CURRENT

    def add_unreadable(self, seq: int, tree: str, refs: Iterable[str]) -> None:
        """Takes in an entry that another version wrote, so that its blobs are not lost."""
        if tree not in self._tombstones:
            self._update(seq, tree, refs)

    def erase(self, seq: int, fate: Erased, due: float) -> bool:
        """Takes in that a tree was erased by the record at `seq`; its remains are to go at `due` (Unix seconds).

        Returns false when that was known.
        """
        tree = fate.tree
        tombstone = self._tombstones.get(tree)
        record = self._trees.get(tree)
        if (tombstone is not None and tombstone.seq >= seq) or (record is not None and record.last > seq):
            return False
        self._tombstones.pop(tree, None)  # the new one is the youngest
        self._tombstones[tree] = Tombstone(tree, seq, fate.at)
        self.pending_erasures[tree] = PendingErasure(tree, seq, due, fate.expired, self.forget(tree))
        return True

    def lift_erasure(self, tree: str) -> None:
        """Takes in that the tree was imported: what follows belongs to it, even if it was erased."""
        self._tombstones.pop(tree, None)

    def forget(self, tree: str) -> list[str]:
        """Forgets the tree; returns the blobs that it referenced."""
        self.unstarted_trees.pop(tree, None)
        record = self._trees.pop(tree, None)
        if record is None:
            return []
        for blob in record.blobs:
            self._references[blob] -= 1
            if not self._references[blob]:
                del self._references[blob]
        return record.blobs

    def get(self, tree: str) -> TreeRecord | None:
        """None for a tree that is not there."""
        return self._trees.get(tree)

    def is_erased(self, tree: str) -> bool:
        """Whether the tree was erased, and not started or imported since."""
        return tree in self._tombstones

    def is_referenced(self, blob: str) -> bool:
        """Whether any tree that is there references the blob."""
        return blob in self._references

    def first_ended(self) -> TreeRecord | None:
        """The tree whose root ended first of all."""
        while self._ends:
            at, tree = self._ends[0]
            record = self._trees.get(tree)
            if record is not None and record.ended_at == at:
                return record
            heappop(self._ends)
        return None

    def is_first_ended(self, tree: str) -> bool:
        """Whether the tree has ended, and is the first to go."""
        return bool(self._ends) and self._ends[0][1] == tree

    def drop_tombstones(self, before: float) -> None:
        """Forgets what was erased before that time (Unix seconds): the records have left the streams."""
        old = []
        for tree, tombstone in self._tombstones.items():
            if tombstone.at >= before:
                break
            old.append(tree)
        for tree in old:
            del self._tombstones[tree]

    def _late(self, tree: str, seq: int) -> EntryStatus:
        self.late_trees[tree] = seq
        return EntryStatus.LATE

    def _update(self, seq: int, tree: str, refs: Iterable[str]) -> TreeRecord:
        record = self._trees.get(tree)
        if record is None:
            record = self._trees[tree] = TreeRecord(tree, seq, None, [])
        record.last = max(record.last, seq)
        for blob in map(sys.intern, refs):  # all trees of an agent name its prompts
            if blob not in record.blobs:
                record.blobs.append(blob)
                self._references[blob] += 1
        return record


def _restarts(entry: Entry, tombstone: Tombstone) -> bool:
    """Whether a run of this id was requested again, after the one before had been erased."""
    return entry.run == entry.tree and any(
        isinstance(event, RunAccepted) and event.task.at > tombstone.at for event in entry.events
    )
