"""Erases a tree on demand: refused while it runs, unless it is to be cancelled first."""

import asyncio
import time
from dataclasses import dataclass

import msgspec

from cadre.adapters.nats.registry import NatsRegistry
from cadre.api.runs import RunSummary
from cadre.errors import BusFull
from cadre.protocol.topology import tree_of
from cadre_gateway.reading.directory import live_agents
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.retention.janitor import Janitor
from cadre_gateway.steering.run_end import RunEnd
from cadre_gateway.streaming.live_feeds import LiveFeeds

END_SECONDS = 60.0
"""A tree has so long to end after its cancellation."""

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
    """How many runs the tree had."""


@dataclass(frozen=True)
class Eraser:
    """Erases trees on demand."""

    lookup: RunLookup
    run_end: RunEnd
    feeds: LiveFeeds
    registry: NatsRegistry
    janitor: Janitor

    async def erase(self, run: str, force: bool) -> Gone:
        """Removes the tree of a root run everywhere; with `force` one that still runs is cancelled first.

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
        """Cancels the active runs and waits until nobody works on the tree any more."""
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
                # A run whose agent is gone has nobody who could go on with it.
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
