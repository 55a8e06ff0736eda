"""A run's events as Server-Sent Events: the journals' history, then what happens live, each event once.

`id:` stands on the last event of an entry only, so a client that lost the connection within an entry gets
that entry again as a whole. What is buffered for a slow client is bounded: when it does not suffice, the
stream goes back to reading from the journals, where nothing is ever lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import msgspec
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cadre.adapters.nats.history import watch_deltas
from cadre.delivery.codec import encode
from cadre.errors import RetryableError
from cadre.journal.events import AnyEvent
from cadre.ports import Stored
from cadre.protocol.messages import Delta
from cadre.protocol.topology import tree_of
from cadre_gateway.desk import Desk
from cadre_gateway.requests.feed import Feed
from cadre_gateway.requests.problems import Problem
from cadre_gateway.runs.lookup import end_of, find

log = logging.getLogger("cadre.gateway")

PING_SECONDS = 15.0
_RETRY = b"retry: 1000\n\n"
_PING = b": ping\n\n"
_GOING = b": this gateway is stopping, come back with Last-Event-ID\nretry: 1000\n\n"
_WAITING = b": NATS does not answer, waiting\n\n"
_BUS_PAUSE = 1.0


class Shown(msgspec.Struct, frozen=True):
    """The data of one event."""

    seq: int
    n: int
    run: str
    parent: str | None
    agent: str
    at: float
    event: AnyEvent


class EventStream(StreamingResponse):
    """Closes its source however the connection ends."""

    def __init__(self, source: AsyncGenerator[bytes]) -> None:
        super().__init__(
            source,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._source.aclose()


async def stream(desk: Desk, run: str, after: int) -> AsyncGenerator[bytes]:
    """Frames of the run's subtree behind sequence `after`, to the run's end or until it is erased."""
    yield _RETRY
    teller = _Teller(desk, run, after)
    tree = tree_of(run)
    end_deltas = await watch_deltas(desk.platform.nc, desk.platform.topology, tree, teller.on_delta)
    try:
        with desk.tail.listen(tree, teller.on_entry), desk.open(tree, teller.feed):
            if desk.draining.is_set():
                teller.feed.close()
            async for frame in teller.tell():
                yield frame
    finally:
        end_deltas()


def frames(stored: Stored) -> Iterator[bytes]:
    """One frame per event of an entry, the stream sequence as `id:` on the last."""
    seq, entry = stored.seq, stored.entry
    for event in entry.events:
        shown = Shown(seq, entry.n, entry.run, entry.parent, entry.agent, entry.at, event)
        mark = b"id: %d\n" % seq if event is entry.events[-1] else b""
        yield _frame(str(event.__struct_config__.tag), shown, mark)


def _frame(name: str, data: Any, mark: bytes = b"") -> bytes:
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), mark, encode(data))


class _Teller:
    def __init__(self, desk: Desk, run: str, after: int) -> None:
        self.feed: Feed[Stored | Delta] = Feed()
        self._desk = desk
        self._run = run
        self._last = after
        """Sequence of the last entry told."""
        self._state: str | None = None
        """How the run has ended."""

    def on_entry(self, stored: Stored) -> None:
        # What happens beside the run's subtree is not waited for: a stream that has nothing to tell pings.
        if self._within(stored.entry.run):
            self.feed.put(stored)

    def on_delta(self, delta: Delta) -> None:
        if self._within(delta.run):
            self.feed.put(delta, may_be_lost=True)

    async def tell(self) -> AsyncIterator[bytes]:
        while self._state is None:
            try:
                async for frame in self._history():
                    yield frame
                # Closed halfway through the history, what is live by now lies behind a gap.
                if not self.feed.closed:
                    async for frame in self._live():
                        yield frame
            except (RetryableError, TimeoutError) as error:
                log.debug("events of %s: %s", self._run, error)
                yield _WAITING
                await asyncio.sleep(_BUS_PAUSE)
            except Problem as problem:
                log.debug("events of %s: %s", self._run, problem)
                return  # it was erased: whoever comes back is told so
            if self.feed.closed and self._state is None:
                if self._desk.draining.is_set():
                    yield _GOING
                return
        yield _frame("end", {"run": self._run, "state": self._state})

    async def _history(self) -> AsyncIterator[bytes]:
        # Before the first read: what comes from now on is in the feed, what was before is in the journals.
        self.feed.clear()
        # An end known by now is in what is read below; one that is learnt of later may still be in the feed.
        summary = await find(self._desk, self._run)
        ended = summary.state if summary.finished else None
        tree = tree_of(self._run)
        known = self._desk.index.tree(tree)
        # A replica may lag behind what the tail has already told.
        at_least = known.last if known else 0
        async for page in self._desk.history.pages(tree, self._last, at_least=at_least):
            for stored in page:
                for frame in self._told(stored):
                    yield frame
                if self._state is not None or self.feed.closed:
                    return
        self._state = ended

    async def _live(self) -> AsyncIterator[bytes]:
        """Returns when the run has ended, the gateway drains, or the buffer did not suffice."""
        while self._state is None:
            taken = await self.feed.take(PING_SECONDS)
            if not taken and not self.feed.closed and not self.feed.overflowed:
                yield _PING
            for item in taken:
                if isinstance(item, Delta):
                    yield _frame("delta", item)
                    continue
                for frame in self._told(item):
                    yield frame
                if self._state is not None:
                    return
            if self.feed.closed or self.feed.overflowed:
                return

    def _told(self, stored: Stored) -> Iterator[bytes]:
        if stored.seq > self._last:
            self._last = stored.seq
            if self._within(stored.entry.run):
                yield from frames(stored)
        self._state = self._state or end_of(stored.entry, self._run)

    def _within(self, run: str) -> bool:
        return run == self._run or run.startswith(f"{self._run}_")


LAST_SEQ = 2**53 - 1
"""Of a stream, at most: JSON has no greater whole numbers."""


def after_of(last_event_id: str | None, after: int | None) -> int:
    """Where a client goes on: its Last-Event-ID, else `?after=`, else the beginning. Raises ValueError."""
    if last_event_id is None or not last_event_id.strip():
        return after or 0
    if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > len(str(LAST_SEQ)):
        raise ValueError(f"Last-Event-ID {last_event_id!r} is not one that this API gave")
    return int(last_event_id)
