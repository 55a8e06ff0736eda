"""Take what is read from the streams to the index and to the ledger."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.reading.tail import Read
from cadre.api.runs import RunSummary
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import RunIndexUnavailable
from cadre.journal.events import RunAccepted
from cadre.protocol.messages import Erased, Lifecycle
from cadre.recent import Recent
from cadre.views.run_summary import summary_of_task
from cadre_gateway.index.run_index import RunIndex, apply_import, apply_read
from cadre_gateway.index.tree_record import EntryStatus
from cadre_gateway.index.usage_ledger import UsageLedger
from cadre_gateway.retention import Janitor

log = logging.getLogger("cadre.gateway")

_PAUSE_SECONDS = 1.0

_KNOWN_ROOTS = 4_000


@dataclass(frozen=True)
class LedgerFeed:
    """Counts in the ledger what the live tail reads. It needs no index: the task of a tree's root says for whom the
    tree works."""

    ledger: UsageLedger
    history: History
    _roots: Recent[str, RunSummary | None] = field(default_factory=lambda: Recent(_KNOWN_ROOTS))

    async def on_entry(self, read: Read) -> None:
        """Count an entry that can be read and was written here."""
        if read.stored is None:
            return
        entry = read.stored.entry
        for event in entry.events:
            if isinstance(event, RunAccepted) and entry.run == entry.tree:
                self._roots[read.tree] = summary_of_task(event.task)
        if not read.imported and not self.ledger.has(read.shard, read.seq):
            self.ledger.add(read.shard, read.seq, read.at, entry, await self._root(read.tree))

    async def _root(self, tree: str) -> RunSummary | None:
        if tree not in self._roots:
            self._roots[tree] = await retry(lambda: self._read_root(tree), pauses=EVERY_SECOND, log=log)
        self._roots.move_to_end(tree)
        return self._roots[tree]

    async def _read_root(self, tree: str) -> RunSummary | None:
        task = await self.history.root_task(tree)
        return summary_of_task(task) if task is not None else None


@dataclass(frozen=True)
class Projector:
    """Takes what the tail of the index reads to the index and the janitor."""

    index: RunIndex
    janitor: Janitor

    async def on_entry(self, read: Read) -> None:
        """Takes in an entry or a workspace file, also one that cannot be read, or a task.

        Waits for an index that fails."""
        await self._patiently(lambda: self._take(read))

    async def on_lifecycle(self, seq: int, lifecycle: Lifecycle) -> None:
        """Takes in that a tree was erased or imported, by the record at `seq`; waits for an index that fails."""
        await self._patiently(lambda: self._take_lifecycle(seq, lifecycle))

    async def _patiently(self, take: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await take()
            except RunIndexUnavailable as error:
                # The code that saves changes warns of it.
                log.debug("the index takes nothing in: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _take(self, read: Read) -> None:
        applied = await apply_read(self.index, read)
        if applied.status is EntryStatus.LATE:
            self.janitor.wake()
        elif applied.ended_at is not None:
            self.janitor.note_end(applied.ended_at)

    async def _take_lifecycle(self, seq: int, lifecycle: Lifecycle) -> None:
        if isinstance(lifecycle, Erased):
            await self.janitor.note_erasure(seq, lifecycle)
        else:
            await apply_import(self.index, seq, lifecycle.tree)
