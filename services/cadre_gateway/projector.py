"""Applies what is read from the streams to the list of runs and to what is known for retention."""

from collections.abc import Callable

from cadre.adapters.nats.tail import Read
from cadre.protocol.messages import Erased, Fate
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.retention.janitor import Janitor
from cadre_gateway.retention.tree_records import EntryStatus, TreeRecords
from cadre_gateway.snapshot import IndexSnapshots


class Projector:
    """What the tail calls; it calls `on_erased` with each tree that was erased."""

    def __init__(
        self,
        index: RunIndex,
        trees: TreeRecords,
        janitor: Janitor,
        snapshots: IndexSnapshots,
        on_erased: Callable[[str], None],
    ) -> None:
        self._index = index
        self._trees = trees
        self._janitor = janitor
        self._snapshots = snapshots
        self._on_erased = on_erased

    def on_entry(self, read: Read) -> None:
        """Takes in an entry or a workspace file, also one that cannot be read."""
        if read.is_file:
            if self._trees.add_file(read.seq, read.tree, read.refs, read.at) is EntryStatus.LATE:
                self._janitor.wake()
        elif read.stored is None:
            self._trees.add_unreadable(read.seq, read.tree, read.refs)
        else:
            seq, entry, _ = read.stored
            status = self._trees.add_entry(seq, entry, read.refs, read.at)
            if status is EntryStatus.CURRENT:
                self._index.apply(seq, entry)
            if status is EntryStatus.LATE or self._trees.is_first_ended(entry.tree):
                self._janitor.wake()
        self._snapshots.note_change()

    def on_fate(self, seq: int, fate: Fate) -> None:
        """Takes in that a tree was erased or imported, by the record at `seq`."""
        if isinstance(fate, Erased):
            self._janitor.note_erasure(seq, fate)
            if self._trees.is_erased(fate.tree):  # and not begun anew since
                self._on_erased(fate.tree)
        else:
            self._trees.lift_erasure(fate.tree)
        self._snapshots.note_change()
