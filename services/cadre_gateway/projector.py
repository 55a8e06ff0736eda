"""Applies what is read from the streams to the list of runs and to what is known for retention."""

from __future__ import annotations

from collections.abc import Callable

from cadre.adapters.nats.tail import Read
from cadre.protocol.messages import Erased, Fate
from cadre_gateway.index.run_list import Index
from cadre_gateway.retention.janitor import Janitor
from cadre_gateway.retention.ledger import Ledger, Verdict
from cadre_gateway.snapshot import Keeper


class Projector:
    """What the tail calls; it calls `on_erased` with each tree that was erased."""

    def __init__(
        self,
        index: Index,
        ledger: Ledger,
        janitor: Janitor,
        keeper: Keeper,
        on_erased: Callable[[str], None],
    ) -> None:
        self._index = index
        self._ledger = ledger
        self._janitor = janitor
        self._keeper = keeper
        self._on_erased = on_erased

    def on_entry(self, read: Read) -> None:
        """Takes in an entry or a workspace file, also one that cannot be read."""
        if read.is_file:
            if self._ledger.take_file(read.seq, read.tree, read.refs, read.at) is Verdict.GHOST:
                self._janitor.wake()
        elif read.stored is None:
            self._ledger.take_unreadable(read.seq, read.tree, read.refs)
        else:
            seq, entry, _ = read.stored
            verdict = self._ledger.take(seq, entry, read.refs, read.at)
            if verdict is Verdict.PART:
                self._index.apply(seq, entry)
            if verdict is Verdict.GHOST or self._ledger.is_next(entry.tree):
                self._janitor.wake()
        self._keeper.note()

    def on_fate(self, seq: int, fate: Fate) -> None:
        """Takes in that a tree was erased or imported, by the record at `seq`."""
        if isinstance(fate, Erased):
            self._janitor.learn(seq, fate)
            if self._ledger.is_erased(fate.tree):  # and not begun anew since
                self._on_erased(fate.tree)
        else:
            self._ledger.imported(fate.tree)
        self._keeper.note()
