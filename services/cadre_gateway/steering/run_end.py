"""The end of a run: waited for, and asked for."""

import time
from dataclasses import dataclass

import anyio

from cadre.api.runs import RunSummary
from cadre.journal.events import CancelRequested
from cadre.ports import Clock, Stored
from cadre.protocol.messages import Cancel
from cadre.views.run_summary import end_state
from cadre_gateway import SENDER
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.feed import Feed
from cadre_gateway.requests.idempotency import IdempotencyKey
from cadre_gateway.requests.problems import Problem
from cadre_gateway.steering.record_sender import RecordSender, other_request, record_id
from cadre_gateway.streaming.live_feeds import LiveFeeds

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
        """Whether the run has ended within `seconds` from now.

        Raises a 404 or 410 problem when there is no such run (any more), BusUnavailable.
        """
        feed: Feed[Stored] = Feed()
        deadline = time.monotonic() + seconds
        with self.feeds.follow(run, feed):
            if (await self.lookup.find(run)).finished:
                return True
            while (left := deadline - time.monotonic()) > 0 and not self.feeds.draining:
                if any(end_state(one.entry, run) for one in await feed.take(left)):
                    return True
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
