"""A tree as its journals have it now: what the index will say of it once it has read as far."""

from dataclasses import dataclass

from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.reading.history import History
from cadre.protocol.fates import Erased
from cadre_gateway.index.tree_record import EntryStatus
from cadre_gateway.index.tree_rows import IndexedTree
from cadre_gateway.requests.problems import note_progress


@dataclass(frozen=True)
class TreeFromJournals:
    """Reads trees from their journals and from the records of their fates."""

    history: History
    erasure: NatsErasure

    async def read(self, tree: str) -> IndexedTree:
        """The tree without its files; an empty one when there is none. Raises RetryableError."""
        found = IndexedTree(tree)
        fate = await self.erasure.fate(tree)
        after = 0
        if fate is not None and isinstance(fate[1], Erased):
            after = fate[0]
            found.record.erase(after, fate[1])
        newest = await self.history.newest(tree)
        async for page in self.history.lean_pages(tree, after, at_least=newest):
            note_progress()
            for seq, entry, _ in page:
                if found.record.add_entry(seq, entry, (), entry.at) is EntryStatus.CURRENT:
                    found.runs.apply(seq, entry)
        return found
