"""Finds runs and their entries: in the list, else in the journals."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field

from cadre.adapters.nats.reading.history import History
from cadre.api.runs import RunSummary
from cadre.ports import Stored
from cadre.protocol.topology import tree_of
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.run_summary import summary_of_task
from cadre_gateway.index.tree_runs import TreeRuns
from cadre_gateway.requests.problems import Problem, note_progress, unknown_run

_PAGES_WITHOUT_TURN = 4
_TURNS = 2
_TURN_SECONDS = 30.0
"""A reader waits so long for its turn."""

_RUN_ID = re.compile(r"[A-Za-z0-9-][A-Za-z0-9_-]{0,511}")


@dataclass(frozen=True)
class RunLookup:
    """Reads what is known of runs, also of those that are too old for the list."""

    index: RunIndex
    history: History
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_TURNS))

    async def find(self, run: str) -> RunSummary:
        """The run's summary, also of one that no agent has taken up yet. Raises a 404 problem, RetryableError."""
        tree = checked_tree_of(run)
        known = await self.index.get(tree, run)
        if known is not None:
            return known
        if await self._is_erased(tree):
            raise unknown_run(run)
        found = (await self._runs_in(tree)).get(run)
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
        known = [] if from_journals else await self.index.runs_of_tree(tree)
        if known := known or list((await self._runs_in(tree)).values()):
            return known
        task = await self.history.task(tree, tree)
        return [summary_of_task(task)] if task is not None else []

    @asynccontextmanager
    async def pages_of_tree(
        self, tree: str, whole_up_to: int | None = None, *, all_of: str | None = None
    ) -> AsyncIterator[AsyncIterator[list[Stored]]]:
        """Opens all entries page by page, without large snapshots unless `whole_up_to` is given; `all_of`: see
        History.lean_pages. They are at least those that the list accounts for: a replica of the stream may lag behind
        it.

        A few long trees are read at a time: what the block makes of the pages is in memory until it is left. Raises
        BusUnavailable, TooLarge, NewerSchema, a 503 problem when no turn comes.
        """
        async with AsyncExitStack() as turn, aclosing(self._pages(tree, turn, whole_up_to, all_of)) as pages:
            yield pages

    async def _pages(
        self, tree: str, turn: AsyncExitStack, whole_up_to: int | None, all_of: str | None
    ) -> AsyncGenerator[list[Stored]]:
        if await self._is_erased(tree):
            return
        first, at_least = await self.index.extent(tree)
        after = max(0, first - 1)
        count = 0
        async for page in self.history.lean_pages(
            tree, after, at_least=at_least, whole_up_to=whole_up_to, all_of=all_of
        ):
            note_progress()
            yield page
            note_progress()
            count += 1
            if count == _PAGES_WITHOUT_TURN:
                await self._take_turn(turn)

    async def _take_turn(self, turn: AsyncExitStack) -> None:
        note_progress(_TURN_SECONDS)
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await turn.enter_async_context(self._turns)
        except TimeoutError:
            detail = f"{_TURNS} other long runs are being read, and one answer reads all of a run: try again"
            raise Problem(503, "reading-busy", detail) from None
        note_progress()

    async def _is_erased(self, tree: str) -> bool:
        """Whether the tree was erased: something of it may be left in its journals."""
        if tree in self.index.removals.pending_erasures:
            return True
        return self.index.is_blind and await self.index.tombstone(tree) is not None

    async def _runs_in(self, tree: str) -> dict[str, RunSummary]:
        """The runs of a tree as its journals have them now."""
        found = TreeRuns(tree)
        async for page in self.history.lean_pages(tree):
            note_progress()
            for one in page:
                found.apply(one.seq, one.entry)
        return found.runs


def checked_tree_of(run: str) -> str:
    """The tree of a run. Raises a 404 problem for a text that may not become part of a subject."""
    if not _RUN_ID.fullmatch(run):
        raise unknown_run(run)
    return tree_of(run)
