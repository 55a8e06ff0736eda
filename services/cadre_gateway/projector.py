"""Applies what is read from the streams to the index and the ledger."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from cadre.adapters.nats.reading.tail import Read
from cadre.api.runs import RunSummary
from cadre.errors import RunIndexUnavailable
from cadre.ports import Stored
from cadre.protocol.fates import Erased, Fate
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_record import EntryStatus
from cadre_gateway.index.usage_ledger import UsageLedger
from cadre_gateway.retention.janitor import Janitor

log = logging.getLogger("cadre.gateway")

_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Projector:
    """What the tail calls; it calls `on_erased` with each tree that was erased."""

    index: RunIndex
    ledger: UsageLedger
    janitor: Janitor
    on_erased: Callable[[str], None]

    async def on_entry(self, read: Read) -> None:
        """Takes in an entry or a workspace file, also one that cannot be read; waits for an index that fails."""
        while True:
            try:
                return await self._take(read)
            except RunIndexUnavailable as error:
                log.warning("entry %d of %s: %s", read.seq, read.tree, error)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def on_fate(self, seq: int, fate: Fate) -> None:
        """Takes in that a tree was erased or imported, by the record at `seq`; waits for an index that fails."""
        while True:
            try:
                return await self._take_fate(seq, fate)
            except RunIndexUnavailable as error:
                log.warning("the fate of %s: %s", fate.tree, error)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _take(self, read: Read) -> None:
        status, ended_at = EntryStatus.CURRENT, None
        async with self.index.changing(read.tree) as tree:
            record, runs = tree.record, tree.runs
            if read.is_file:
                status = record.add_file(read.seq, read.refs, read.at)
            elif read.stored is None:
                record.add_unreadable(read.seq, read.refs)
            else:
                was_ended = record.ended_at is not None
                status = record.add_entry(read.seq, read.stored.entry, read.refs, read.at)
                if status is EntryStatus.CURRENT:
                    runs.apply(read.seq, read.stored.entry)
                ended_at = None if was_ended else record.ended_at
                self._count(read, read.stored, runs.runs.get(read.tree))
            if status is EntryStatus.LATE:
                self.index.removals.late_trees[read.tree] = read.seq
        if status is EntryStatus.LATE:
            self.janitor.wake()
        elif ended_at is not None:
            self.janitor.note_end(ended_at)

    def _count(self, read: Read, stored: Stored, root: RunSummary | None) -> None:
        if not read.imported:
            self.ledger.add(read.shard, read.seq, read.at, stored.entry, root)

    async def _take_fate(self, seq: int, fate: Fate) -> None:
        if isinstance(fate, Erased):
            await self.janitor.note_erasure(seq, fate)
            if await self.index.tombstone(fate.tree) is not None:  # and not begun anew since
                self.on_erased(fate.tree)
        else:
            async with self.index.changing(fate.tree) as tree:
                tree.lift_erasure()
