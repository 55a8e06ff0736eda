"""Applies what is read from the streams to the index and the ledger."""

import asyncio
import logging
from dataclasses import dataclass

from cadre.adapters.nats.reading.tail import Read
from cadre.errors import RunIndexUnavailable
from cadre.protocol.fates import Erased, Fate
from cadre_gateway.index.applying import apply_import, apply_read
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_record import EntryStatus
from cadre_gateway.index.usage_ledger import UsageLedger
from cadre_gateway.retention.janitor import Janitor

log = logging.getLogger("cadre.gateway")

_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class Projector:
    """What the tail calls."""

    index: RunIndex
    ledger: UsageLedger
    janitor: Janitor

    async def on_entry(self, read: Read) -> None:
        """Takes in an entry or a workspace file, also one that cannot be read, or a task.

        Waits for an index that fails."""
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
        applied = await apply_read(self.index, read)
        if read.stored is not None and not read.imported:
            self.ledger.add(read.shard, read.seq, read.at, read.stored.entry, applied.root)
        if applied.status is EntryStatus.LATE:
            self.janitor.wake()
        elif applied.ended_at is not None:
            self.janitor.note_end(applied.ended_at)

    async def _take_fate(self, seq: int, fate: Fate) -> None:
        if isinstance(fate, Erased):
            await self.janitor.note_erasure(seq, fate)
        else:
            await apply_import(self.index, fate.tree)
