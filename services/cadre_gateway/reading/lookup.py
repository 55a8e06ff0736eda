"""Find runs and their entries, in their tasks and journals."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field

from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.streams.shard_watch import ShardWatch
from cadre.api.runs import RunSummary
from cadre.errors import BlobMissing, UnreadableMessage
from cadre.journal.events import RunAccepted
from cadre.ports import Journal, Stored
from cadre.protocol.messages import Erased, Lifecycle
from cadre.protocol.topology import tree_of
from cadre.views.run_summary import summary_of_task
from cadre.views.story import Story
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.tree_record import Tombstone, restarts
from cadre_gateway.requests.problems import Problem, note_progress, unknown_run
from cadre_gateway.requests.trace_link import note_sampling

_PAGES_WITHOUT_TURN = 4
_TURNS = 2
_FINDS = 8
"""So many runs are looked up at a time: each holds all entries of a run."""
_TURN_SECONDS = 30.0
"""Seconds that a reader waits for its turn."""

_RUN_ID = re.compile(r"[A-Za-z0-9-][A-Za-z0-9_-]{0,511}")


@dataclass(frozen=True)
class RunLookup:
    """Reads runs from their tasks and journals, at the leader of their stream. The index has lists and nothing else: it
    may be late, away or lost, so no question about one run is asked of it."""

    index: RunIndex
    history: History
    journal: Journal
    erasure: NatsErasure
    shards: ShardWatch
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_TURNS))
    _finds: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_FINDS))

    async def find(self, run: str) -> RunSummary:
        """Return the run's summary, also before an agent takes it up. Its `approvals` are its own, without those of the
        runs below it. Raise a 404 problem, RetryableError."""
        found = await self.known(run)
        if found is None:
            raise unknown_run(run)
        return found

    async def known(self, run: str) -> RunSummary | None:
        """Return what `find` returns, or None where there is no such run. Raise a 404 problem for a text that cannot be
        an id, RetryableError."""
        tree = checked_tree_of(run)
        async with self._finds:
            return await self._known(tree, run)

    async def _known(self, tree: str, run: str) -> RunSummary | None:
        erased = _erased(await self.erasure.lifecycle(tree))
        # Of an erased tree a late entry may be left for a moment, whose predecessors are gone.
        gone = erased is not None and not await self._is_begun_again(tree, erased)
        found = Story(tree)
        for one in [] if gone else await self._recent(tree, run):
            if erased is None or one.seq > erased.seq:
                found.take(one.seq, one.entry)
                for event in one.entry.events if one.entry.n == 1 else ():
                    if isinstance(event, RunAccepted):
                        note_sampling(event.task)
        if run in found.summaries:
            return found.summaries[run]
        task = await self.history.task(tree, run)
        if task is None or (erased is not None and task.at <= erased.at):
            return None
        note_sampling(task)
        return summary_of_task(task)

    async def entry(self, run: str, n: int) -> Stored:
        """Return the `n`-th entry of a run, whole. Raise a 404 problem where there is no such entry, NewerSchema,
        RetryableError."""
        tree = checked_tree_of(run)
        stored, lifecycle = await asyncio.gather(self.history.entry(tree, run, n), self.erasure.lifecycle(tree))
        erased = _erased(lifecycle)
        if stored is not None and (erased is None or stored.seq > erased.seq):
            return stored
        await self.find(run)
        raise Problem(404, "unknown-entry", f"run {run} has no entry {n}: `n` of its events names those that it has")

    async def is_erased(self, tree: str) -> bool:
        """Return whether the tree was erased and has not begun again since: its journals may still hold a part of it.
        Raise RetryableError."""
        erased = _erased(await self.erasure.lifecycle(tree))
        return erased is not None and not await self._is_begun_again(tree, erased)

    async def runs_of_tree(self, tree: str) -> list[RunSummary]:
        """Return all runs of a tree: only its root before an agent takes that up, [] when there is no such tree. Raise
        RetryableError, a 503 problem when no turn comes."""
        found = Story(tree)
        async with self.pages_of_tree(tree) as pages:
            async for page in pages:
                for one in page:
                    found.take(one.seq, one.entry)
        if not found.summaries and (root := await self.known(tree)) is not None:
            return [root]
        return list(found.summaries.values())

    @asynccontextmanager
    async def pages_of_tree(
        self, tree: str, whole_up_to: int | None = None, *, all_of: str | None = None
    ) -> AsyncIterator[AsyncIterator[list[Stored]]]:
        """Open all entries page by page; `whole_up_to` and `all_of`: see History.lean_pages. They are all that the
        stream's leader has: a replica that lags hides none.

        A few long trees are read at a time: what the block makes of the pages is in memory until it is left. Raises
        BusUnavailable, TooLarge, NewerSchema, a 503 problem when no turn comes.
        """
        async with AsyncExitStack() as turn, aclosing(self._pages(tree, turn, whole_up_to, all_of)) as pages:
            yield pages

    async def _pages(
        self, tree: str, turn: AsyncExitStack, whole_up_to: int | None, all_of: str | None
    ) -> AsyncGenerator[list[Stored]]:
        (first, at_least), lifecycle = await asyncio.gather(self.history.extent(tree), self.erasure.lifecycle(tree))
        after = max(0, first - 1)
        if (erased := _erased(lifecycle)) is not None:
            if not await self._is_begun_again(tree, erased):
                return
            after = max(after, erased.seq)
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

    async def _recent(self, tree: str, run: str) -> list[Stored]:
        """Return the entries of a run; where this version cannot read one of them, all that it can read."""
        try:
            return await self.journal.read(tree, run)
        except (UnreadableMessage, BlobMissing):
            return [one async for page in self.history.lean_pages(tree, run=run) for one in page]

    async def _is_begun_again(self, tree: str, erased: Tombstone) -> bool:
        """Return whether a run of the same id was accepted after the tree was erased."""
        first = await self.history.first(tree, tree, erased.seq)
        return first is not None and restarts(first.entry, erased)


def _erased(lifecycle: tuple[int, Lifecycle] | None) -> Tombstone | None:
    if lifecycle is None or not isinstance(lifecycle[1], Erased):
        return None
    return Tombstone(lifecycle[0], lifecycle[1].at)


def checked_tree_of(run: str) -> str:
    """Return the tree of a run. Raises a 404 problem for a text that may not become part of a subject."""
    if not _RUN_ID.fullmatch(run):
        raise unknown_run(run)
    return tree_of(run)
