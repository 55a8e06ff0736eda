"""Erases a tree on demand: refused while it runs, unless it is to be cancelled first."""

from __future__ import annotations

import asyncio
import time

import msgspec

from cadre.protocol.topology import tree_of
from cadre_gateway.desk import Desk
from cadre_gateway.index.run_list import RunSummary
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.runs.directory import live_agents
from cadre_gateway.runs.lookup import cancel, find, known_runs

END_WITHIN = 60.0
"""Seconds that a tree has to end after its cancellation."""

REMOVE_WITHIN = 60.0

_REASON = "erased"
_NOTHING_NEW = 1.0


class Gone(msgspec.Struct):
    """The answer to an erasure."""

    id: str
    runs: int
    """How many runs the tree had."""


async def erase(desk: Desk, run: str, force: bool) -> Gone:
    """Removes the tree of a root run everywhere; with `force` one that still runs is cancelled first.

    Raises a 404, 409 or 422 problem, RetryableError.
    """
    await find(desk, run)
    tree = tree_of(run)
    if run != tree:
        raise invalid(f"run {run} is a part of run {tree}, and only whole trees are erased: erase {tree}")
    runs = await known_runs(desk, tree)
    if any(not one.finished for one in runs):
        runs = await known_runs(desk, tree, by_now=True)
    going = [one for one in runs if not one.finished]
    if going and not force:
        raise Problem(
            409,
            "run-not-ended",
            f"{_named(going)}: wait for the end, cancel it, or erase with force=true"
            " (`cadre runs rm --force`), which cancels it first",
        )
    if going:
        await _end(desk, tree, going)
    async with asyncio.timeout(REMOVE_WITHIN):
        await desk.janitor.erase(tree)
    return Gone(tree, len(runs))


async def _end(desk: Desk, tree: str, going: list[RunSummary]) -> None:
    """Cancels what runs and waits until nobody works on the tree any more."""
    names = {one.id for one in going}
    for one in going:
        # Whoever is below a run that is told is told by it.
        if one.parent not in names:
            await cancel(desk, one.id, _REASON)
    deadline = time.monotonic() + END_WITHIN
    news = asyncio.Event()
    with desk.tail.listen(tree, lambda _: news.set()):
        while True:
            news.clear()
            going = [one for one in await known_runs(desk, tree) if not one.finished]
            live = live_agents(desk.platform.registry.presences())
            # A run whose agent is gone has nobody who could go on with it.
            if not any(one.agent in live for one in going):
                return
            if time.monotonic() > deadline:
                raise Problem(
                    409,
                    "run-not-ended",
                    f"{_named(going)}, {END_WITHIN:g} s after it was cancelled: look at the log of its agent,"
                    " then erase again",
                )
            try:
                async with asyncio.timeout(_NOTHING_NEW):
                    await news.wait()
            except TimeoutError:
                continue  # agents come and go without an entry


def _named(going: list[RunSummary]) -> str:
    first, more = going[0], len(going) - 1
    others = f" (and {more} more of its tree)" if more else ""
    return f"run {first.id} of agent {first.agent!r} has not ended{others}"
