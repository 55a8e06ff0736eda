"""Finds runs and their entries: in the list, else in the journals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cadre.adapters.nats.history import History
from cadre.api.runs import RunSummary
from cadre.ports import Stored
from cadre.protocol.topology import tree_of
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.run_summary import summary_of_task
from cadre_gateway.requests.problems import unknown_run
from cadre_gateway.retention.tree_records import TreeRecords

_RUN_ID = re.compile(r"[A-Za-z0-9-][A-Za-z0-9_-]{0,511}")


@dataclass(frozen=True)
class RunLookup:
    """Reads what is known of runs, also of those that are too old for the list."""

    index: RunIndex
    trees: TreeRecords
    history: History

    async def find(self, run: str) -> RunSummary:
        """The run's summary, also of one that no agent has taken up yet. Raises a 404 problem, BusUnavailable."""
        tree = checked_tree_of(run)
        known = self.index.get(tree, run)
        if known is not None:
            return known
        if tree in self.trees.pending_erasures:
            raise unknown_run(run)
        found = index_of(await self.history.read_tree(tree)).get(tree, run)
        if found is not None:
            return found
        task = await self.history.task(tree, run)
        if task is None:
            raise unknown_run(run)
        return summary_of_task(task)

    async def runs_of_tree(self, tree: str, *, from_journals: bool = False) -> list[RunSummary]:
        """All runs of a tree; only its root when no agent has taken that up yet, [] when there is no such tree.

        The list may be a moment behind; `from_journals` reads what they say now. Raises BusUnavailable.
        """
        known = self.index.tree(tree)
        if from_journals or known is None:
            known = index_of(await self.history.read_tree(tree)).tree(tree)
        if known is not None:
            return list(known.runs.values())
        task = await self.history.task(tree, tree)
        return [summary_of_task(task)] if task is not None else []

    async def entries_of_tree(self, tree: str) -> list[Stored]:
        """All entries, at least those that the list accounts for: a replica of the stream may lag behind it.

        Raises BusUnavailable.
        """
        if tree in self.trees.pending_erasures:
            return []
        known = self.index.tree(tree)
        first, last = (known.first, known.last) if known else (0, 0)
        return await self.history.read_tree(tree, max(0, first - 1), at_least=last)


def checked_tree_of(run: str) -> str:
    """The tree of a run. Raises a 404 problem for a text that may not become part of a subject."""
    if not _RUN_ID.fullmatch(run):
        raise unknown_run(run)
    return tree_of(run)


def index_of(stored: Sequence[Stored]) -> RunIndex:
    """A list of just these entries' runs."""
    index = RunIndex(capacity=len(stored) + 1)
    for one in stored:
        index.apply(one.seq, one.entry)
    return index
