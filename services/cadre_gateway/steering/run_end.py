"""Wait for a run's end, ask for it, and erase a tree on demand: refused while it runs, unless it is to be cancelled
first."""

import asyncio
import time
from dataclasses import dataclass

import anyio
import msgspec

from cadre.adapters.nats.registry import NatsRegistry
from cadre.api.runs import RunResult, RunSummary
from cadre.errors import BusFull
from cadre.journal.events import CancelRequested, RunFinished
from cadre.ports import Clock, Stored
from cadre.protocol.messages import Cancel
from cadre.protocol.topology import tree_of
from cadre.views.run_summary import end_of
from cadre_gateway import SENDER
from cadre_gateway.reading.detail import run_result
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.retention import Janitor
from cadre_gateway.steering.steer import RecordSender, other_request, record_id
from cadre_gateway.streaming.follow import Feed, LiveFeeds

_NOT_FOUND = 404
_GIVE_UP_SECONDS = 10.0


@dataclass(frozen=True)
class RunEnd:
    """Waits for the end of runs, and cancels them."""

    lookup: RunLookup
    feeds: LiveFeeds
    sender: RecordSender
    clock: Clock

    async def wait(self, run: str, seconds: float) -> bool:
        """Return whether the run has ended within `seconds` from now.

        Raises a 404 or 410 problem when there is no such run (any more), BusUnavailable.
        """
        return bool(await self._end(run, seconds))

    async def result(self, run: str, seconds: float, *, full: bool, is_new: bool) -> RunResult | None:
        """Return the result of the run once it has ended, None if it has not within `seconds` from now. `is_new` says
        that this very request has started it. Raises as `wait`."""
        end = await self._end(run, seconds, is_new)
        if isinstance(end, RunFinished) and not full:
            return RunResult(id=run, state=end.state, output=end.output, error=end.error)
        return await run_result(self.lookup, run, full) if end else None

    async def _end(self, run: str, seconds: float, is_new: bool = False) -> RunFinished | bool:
        """Return the end as it came, or whether the run has ended."""
        feed: Feed[Stored] = Feed()
        deadline = time.monotonic() + seconds
        with self.feeds.follow(run, feed):
            # A new run of which nothing was heard yet is heard from its beginning: there is nothing to look up.
            is_heard = is_new and not self.feeds.last_live(tree_of(run))
            if not is_heard and (await self.lookup.find(run)).finished:
                return True
            while (left := deadline - time.monotonic()) > 0 and not self.feeds.draining:
                for one in await feed.take(left):
                    if (end := end_of(one.entry, run)) is not None:
                        return end
                if feed.overflowed:
                    feed.clear()
                    if (await self.lookup.find(run)).finished:
                        return True
                if feed.closed and not self.feeds.draining:
                    raise Problem(410, "run-erased", f"run {run} was erased while its end was waited for")
        return False

    async def cancel(
        self, run: str, reason: str, *, now: bool = False, key: IdempotencyKey | None = None
    ) -> RunSummary:
        """Ask the run and everything below it to end, once it has made up for what it did; with `now`, at once. A run
        that has ended is left alone, and so is one that is asked again without `now`, or with the same `key`.

        Returns the run as it was before. Raises a 404 problem, a 422 problem for a key that came with something else,
        RetryableError.
        """
        summary = await self.lookup.find(run)
        if summary.finished:
            return summary
        record = Cancel(
            id=record_id(run, "cancel", key),
            tree=summary.tree,
            run=run,
            at=self.clock.now(),
            reason=reason,
            sender=SENDER,
            now=now,
        )
        known = await self.sender.earlier(record) if key is not None else None
        requested = known.events[0] if known is not None else None
        if isinstance(requested, CancelRequested) and (requested.reason, requested.now) != (reason, now):
            raise other_request(key)
        if known is None:
            await self.sender.bus.send_in_order(record, SENDER, to=summary.agent)
            await self.sender.bus.interrupt(summary.tree, run)
        return summary

    async def give_up(self, run: str, reason: str) -> None:
        """Cancel a run whose caller is gone, also while the request that began it is itself being cancelled. A run that
        was erased is left alone. Raise RetryableError."""
        with anyio.move_on_after(_GIVE_UP_SECONDS, shield=True):
            try:
                await self.cancel(run, reason)
            except Problem as problem:
                if problem.status != _NOT_FOUND:
                    raise


END_SECONDS = 60.0
"""Seconds that a tree has to end after its cancellation."""

REMOVE_SECONDS = 60.0

_FULL = (
    "this run cannot be removed before there is room for the record of that; remove another one that has ended, or"
    " raise the limit"
)
_REASON = "erased"
_RECHECK_SECONDS = 1.0


class Gone(msgspec.Struct):
    """The answer to an erasure."""

    id: str
    runs: int
    """The number of runs in the tree."""


@dataclass(frozen=True)
class Eraser:
    """Erases trees on demand."""

    lookup: RunLookup
    run_end: RunEnd
    feeds: LiveFeeds
    registry: NatsRegistry
    janitor: Janitor

    async def erase(self, run: str, force: bool) -> Gone:
        """Remove the tree of a root run everywhere; with `force` one that still runs is cancelled first.

        Raises a 404, 409 or 422 problem, RetryableError.
        """
        # Which blobs are another tree's as well is known by then.
        self.lookup.index.check_whole()
        await self.lookup.find(run)
        tree = tree_of(run)
        if run != tree:
            raise invalid(f"run {run} is a part of run {tree}, and only whole trees are erased: erase {tree}")
        runs = await self.lookup.runs_of_tree(tree)
        active = _active(runs)
        if active and not force:
            raise Problem(
                409,
                "run-not-ended",
                f"{_names(active)}: wait for the end, cancel it, or erase with force=true"
                " (`cadre runs remove --force`), which cancels it first",
            )
        try:
            if active:
                await self._end(tree, active)
            async with asyncio.timeout(REMOVE_SECONDS):
                await self.janitor.erase(tree)
        except TimeoutError:
            if (failure := self.lookup.index.failure) is not None:
                raise failure from None  # NATS has answered, the index has not
            raise
        except BusFull as error:
            raise Problem(503, "bus-unavailable", f"{error}: {_FULL}") from error
        return Gone(tree, len(runs))

    async def _end(self, tree: str, active: list[RunSummary]) -> None:
        """Cancel the active runs and wait until no process works on the tree any more."""
        ids = {one.id for one in active}
        for one in active:
            # A cancelled run cancels those below it itself.
            if one.parent not in ids:
                await self.run_end.cancel(one.id, _REASON)
        deadline = time.monotonic() + END_SECONDS
        news = asyncio.Event()
        with self.feeds.tail.listen(tree, lambda _: news.set()):
            while True:
                news.clear()
                active = _active(await self.lookup.runs_of_tree(tree))
                live = live_agents(self.registry.presences())
                # A run whose agent is gone has no service that could go on with it.
                if not any(one.agent in live for one in active):
                    return
                if time.monotonic() > deadline:
                    raise Problem(
                        409,
                        "run-not-ended",
                        f"{_names(active)}, {END_SECONDS:g} s after it was cancelled: look at the log of its"
                        " agent, then erase again",
                    )
                try:
                    async with asyncio.timeout(_RECHECK_SECONDS):
                        await news.wait()
                except TimeoutError:
                    continue  # agents come and go without an entry


def _active(runs: list[RunSummary]) -> list[RunSummary]:
    return [one for one in runs if not one.finished]


def _names(active: list[RunSummary]) -> str:
    first, more = active[0], len(active) - 1
    others = f" (and {more} more of its tree)" if more else ""
    return f"run {first.id} of agent {first.agent!r} has not ended{others}"
