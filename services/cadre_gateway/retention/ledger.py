"""What there is and how long it stays: when each tree ended, which blobs it names, what was erased. Pure.

Unlike the list of runs it knows every tree in the streams, and so little of each that all of them fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum, auto
from heapq import heapify, heappop, heappush

import msgspec

from cadre.journal.events import Entry, RunAccepted, RunFinished
from cadre.protocol.messages import Erased
from cadre_gateway.index.run_list import begins_nothing


class Verdict(Enum):
    """What an entry is, as the ledger knows its tree."""

    PART = auto()
    """Of a tree that is there."""
    GONE = auto()
    """From before its tree was erased."""
    GHOST = auto()
    """Of a tree that was erased before, or never was: somebody was late."""


class Holding(msgspec.Struct, array_like=True):
    """A tree that is in the streams."""

    tree: str
    last: int
    """Sequence of its newest known entry."""
    ended_at: float | None = None
    """When the end of its root was stored here, in Unix seconds."""
    blobs: list[str] = []


class Erasing(msgspec.Struct, array_like=True):
    """An erased tree of which something may be left in the streams."""

    tree: str
    before: int
    """Sequence of the record that it was erased: everything of the tree below it goes."""
    due: float
    """Unix seconds from which it is this gateway's to do: whoever erased the tree is about to."""
    expired: bool
    blobs: list[str] = []
    """That were known to be the tree's."""


class Tombstone(msgspec.Struct, array_like=True):
    tree: str
    seq: int
    at: float


class Books(msgspec.Struct, kw_only=True):
    """The ledger in its saved form."""

    holdings: list[Holding] = []
    tombstones: list[Tombstone] = []
    erasing: list[Erasing] = []
    ghosts: dict[str, int] = {}
    left: dict[str, float] = {}
    unbegun: dict[str, float] = {}


class Ledger:
    """Built from entries and fates in stream order; taking one in twice changes nothing."""

    def __init__(self, books: Books | None = None) -> None:
        books = books or Books()
        self._trees = {holding.tree: holding for holding in books.holdings}
        self._tombs = {tomb.tree: tomb for tomb in books.tombstones}
        self.erasing = {one.tree: one for one in books.erasing}
        """Erased trees whose remains are still to be removed, in the order in which they were erased."""
        self.left = dict(books.left)
        """Blobs of removed trees that were too young to go, by the time from which they may."""
        self.ghosts = dict(books.ghosts)
        """Trees of which something came late, with the sequence of the last of it."""
        self.unbegun = dict(books.unbegun)
        """Trees of which there are files only, by the time when the first of them was stored."""
        self._named = Counter(blob for holding in books.holdings for blob in holding.blobs)
        self._ends = [(one.ended_at, one.tree) for one in books.holdings if one.ended_at is not None]
        heapify(self._ends)

    def __len__(self) -> int:
        return len(self._trees)

    def books(self) -> Books:
        return Books(
            holdings=list(self._trees.values()),
            tombstones=list(self._tombs.values()),
            erasing=list(self.erasing.values()),
            ghosts=self.ghosts,
            left=self.left,
            unbegun=self.unbegun,
        )

    def take(self, seq: int, entry: Entry, refs: Iterable[str], at: float) -> Verdict:
        """Takes in the entry at `seq`, which names the blobs `refs` and was stored at `at`."""
        tomb = self._tombs.get(entry.tree)
        if tomb is not None:
            if seq < tomb.seq:
                return Verdict.GONE
            if not _begins_anew(entry, tomb):
                self.ghosts[entry.tree] = seq
                return Verdict.GHOST
            del self._tombs[entry.tree]
        is_new = entry.tree not in self._trees or entry.tree in self.unbegun
        if is_new and begins_nothing(entry):
            self.ghosts[entry.tree] = seq
            return Verdict.GHOST
        known = self._trees.get(entry.tree)
        if known is not None and seq <= known.last:
            return Verdict.PART
        holding = self._hold(seq, entry.tree, refs)
        self.unbegun.pop(entry.tree, None)
        is_end = entry.run == entry.tree and any(isinstance(event, RunFinished) for event in entry.events)
        if is_end and holding.ended_at is None:
            holding.ended_at = at
            heappush(self._ends, (at, entry.tree))
        return Verdict.PART

    def take_file(self, seq: int, tree: str, refs: Iterable[str], at: float) -> Verdict:
        """Takes in a file of a tree's workspace, which may be there before the tree's first entry."""
        tomb = self._tombs.get(tree)
        if tomb is not None:
            if seq < tomb.seq:
                return Verdict.GONE
            self.ghosts[tree] = seq
            return Verdict.GHOST
        if tree not in self._trees:
            self.unbegun[tree] = at
        self._hold(seq, tree, refs)
        return Verdict.PART

    def take_unreadable(self, seq: int, tree: str, refs: Iterable[str]) -> None:
        """Takes in what another version wrote: its blobs are not to be lost."""
        tomb = self._tombs.get(tree)
        if tomb is None:
            self._hold(seq, tree, refs)

    def erased(self, seq: int, fate: Erased, due: float) -> bool:
        """A tree was erased by the record at `seq`, its remains are to go at `due`; false when that is known."""
        tree = fate.tree
        tomb = self._tombs.get(tree)
        holding = self._trees.get(tree)
        if (tomb is not None and tomb.seq >= seq) or (holding is not None and holding.last > seq):
            return False
        self._tombs.pop(tree, None)  # the new one is the youngest
        self._tombs[tree] = Tombstone(tree, seq, fate.at)
        self.erasing[tree] = Erasing(tree, seq, due, fate.expired, self.forget(tree))
        return True

    def imported(self, tree: str) -> None:
        """What follows is the tree's own, even if it was erased."""
        self._tombs.pop(tree, None)

    def forget(self, tree: str) -> list[str]:
        """Forgets the tree; returns the blobs that it named."""
        self.unbegun.pop(tree, None)
        holding = self._trees.pop(tree, None)
        if holding is None:
            return []
        for blob in holding.blobs:
            self._named[blob] -= 1
            if not self._named[blob]:
                del self._named[blob]
        return holding.blobs

    def holding(self, tree: str) -> Holding | None:
        return self._trees.get(tree)

    def is_erased(self, tree: str) -> bool:
        return tree in self._tombs

    def is_named(self, blob: str) -> bool:
        """Whether any tree that is there names it."""
        return blob in self._named

    def next_end(self) -> Holding | None:
        """The tree whose root ended first of all."""
        while self._ends:
            at, tree = self._ends[0]
            holding = self._trees.get(tree)
            if holding is not None and holding.ended_at == at:
                return holding
            heappop(self._ends)
        return None

    def is_next(self, tree: str) -> bool:
        """Whether the tree has ended, and is the first to go."""
        return bool(self._ends) and self._ends[0][1] == tree

    def forget_tombs(self, before: float) -> None:
        """Forgets what was erased before that time: the records have left the streams."""
        old = []
        for tree, tomb in self._tombs.items():
            if tomb.at >= before:
                break  # they are in the order in which they were made
            old.append(tree)
        for tree in old:
            del self._tombs[tree]

    def _hold(self, seq: int, tree: str, refs: Iterable[str]) -> Holding:
        holding = self._trees.get(tree)
        if holding is None:
            holding = self._trees[tree] = Holding(tree, seq, None, [])
        holding.last = max(holding.last, seq)
        for blob in refs:
            if blob not in holding.blobs:
                holding.blobs.append(blob)
                self._named[blob] += 1
        return holding


def _begins_anew(entry: Entry, tomb: Tombstone) -> bool:
    """Whether somebody asked for a run of this id again, after the one before had been erased."""
    return entry.run == entry.tree and any(
        isinstance(event, RunAccepted) and event.task.at > tomb.at for event in entry.events
    )
