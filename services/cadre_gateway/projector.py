"""Applies what is read from the streams to the list of runs, the ledger, and what is known for retention."""

from collections.abc import Callable
from dataclasses import dataclass

from cadre.adapters.nats.reading.tail import Read
from cadre.protocol.fates import Erased, Fate
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.usage_ledger import UsageLedger
from cadre_gateway.retention.janitor import Janitor
from cadre_gateway.retention.tree_records import EntryStatus, TreeRecords
from cadre_gateway.snapshot import IndexSnapshots


@dataclass(frozen=True)
class Projector:
    """What the tail calls; it calls `on_erased` with each tree that was erased."""

    index: RunIndex
    ledger: UsageLedger
    trees: TreeRecords
    janitor: Janitor
    snapshots: IndexSnapshots
    on_erased: Callable[[str], None]

    def on_entry(self, read: Read) -> None:
        """Takes in an entry or a workspace file, also one that cannot be read."""
        if read.is_file:
            if self.trees.add_file(read.seq, read.tree, read.refs, read.at) is EntryStatus.LATE:
                self.janitor.wake()
        elif read.stored is None:
            self.trees.add_unreadable(read.seq, read.tree, read.refs)
        else:
            seq, entry, _ = read.stored
            status = self.trees.add_entry(seq, entry, read.refs, read.at)
            if status is EntryStatus.CURRENT:
                self.index.apply(seq, entry)
            if not read.imported:
                root = self.index.get(entry.tree, entry.tree)
                self.ledger.add(read.shard, seq, read.at, entry, root)
            if status is EntryStatus.LATE or self.trees.is_first_ended(entry.tree):
                self.janitor.wake()
        self.snapshots.note_change()

    def on_fate(self, seq: int, fate: Fate) -> None:
        """Takes in that a tree was erased or imported, by the record at `seq`."""
        if isinstance(fate, Erased):
            self.janitor.note_erasure(seq, fate)
            if self.trees.is_erased(fate.tree):  # and not begun anew since
                self.on_erased(fate.tree)
        else:
            self.trees.lift_erasure(fate.tree)
        self.snapshots.note_change()
