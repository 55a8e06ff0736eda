"""Applies what is read from the streams to an index."""

from __future__ import annotations

from typing import NamedTuple

from cadre.adapters.nats.reading.tail import Read
from cadre.protocol.messages import Erased
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.saved import PendingErasure
from cadre_gateway.index.tree_record import EntryStatus
from cadre_gateway.index.tree_rows import BY_THIS_ALONE

GRACE_SECONDS = 10.0
"""The gateway that erased a tree has so long to remove it before others do."""


class Applied(NamedTuple):
    """What an entry or a file meant."""

    status: EntryStatus
    ended_at: float | None
    """When its tree has ended, in Unix seconds, if that is news."""


async def apply_read(index: RunIndex, read: Read) -> Applied:
    """Takes in an entry or a workspace file, also one that cannot be read, or a task. Raises RunIndexUnavailable."""
    status = EntryStatus.CURRENT
    # Files have their own reader: one that came between an erasure and the run's next beginning counts in a
    # gateway that knows of both, and is late in another.
    reader = BY_THIS_ALONE if read.is_file else f"{read.shard}/{'journals' if read.task is None else 'tasks'}"
    async with index.changing(read.tree, reader, read.seq) as tree:
        record, runs = tree.record, tree.runs
        before = record.ended_at
        if read.task is not None:
            if record.awaits(read.seq, read.task):
                runs.add_task(read.seq, read.task)
        elif read.is_file:
            status = record.add_file(read.seq, read.refs, read.at)
        elif read.stored is None:
            record.add_unreadable(read.seq, read.refs)
        else:
            status = record.add_entry(read.seq, read.stored.entry, read.refs, read.at)
            if status is EntryStatus.CURRENT:
                runs.apply(read.seq, read.stored.entry)
        if status is EntryStatus.LATE:
            index.removals.late_trees[read.tree] = read.seq
        ended_at = record.ended_at if before is None else None
        return Applied(status, ended_at)


async def apply_erasure(index: RunIndex, seq: int, lifecycle: Erased) -> bool:
    """Takes in that a tree was erased by the record at `seq`; false when that was known. Raises RunIndexUnavailable."""
    async with index.changing(lifecycle.tree) as tree:
        if not tree.record.erase(seq, lifecycle):
            return False
        index.removals.pending_erasures[lifecycle.tree] = PendingErasure(
            lifecycle.tree, seq, lifecycle.at + GRACE_SECONDS, lifecycle.expired, tree.forget()
        )
        return True


async def apply_import(index: RunIndex, seq: int, tree: str) -> None:
    """Takes in that a tree was imported by the record at `seq`: what follows belongs to it. Raises
    RunIndexUnavailable."""
    async with index.changing(tree) as found:
        found.record.restore(seq)
