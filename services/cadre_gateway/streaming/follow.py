"""Follows a run: what its journals hold, then what happens live, each entry once and in order.

What is buffered for a slow reader is bounded. When that does not suffice, the journals are read again from the
last entry that was handed out: nothing is ever lost there.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, TypeVar

from cadre.adapters.nats.reading.tail import LiveTail
from cadre.api.runs import State
from cadre.errors import RetryableError
from cadre.ports import Stored
from cadre.protocol.deltas import Delta
from cadre.protocol.topology import is_within, tree_of
from cadre.views.run_summary import end_state
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem

T = TypeVar("T")

MAX_ITEMS = 256


class Feed(Generic[T]):
    """Buffers items for one reader; it never holds the source up."""

    def __init__(self, limit: int = MAX_ITEMS) -> None:
        self._items: deque[T] = deque()
        self._limit = limit
        self._news = asyncio.Event()
        self.overflowed = False
        """True if an item that may not be lost found no room: it has to be read from the stream instead."""
        self.closed = False

    def put(self, item: T, *, may_be_lost: bool = False) -> None:
        """Add an item; without room it is lost, and unless it may be, the feed has overflowed."""
        if len(self._items) < self._limit:
            self._items.append(item)
        elif not may_be_lost:
            self.overflow()
        self._news.set()

    def overflow(self) -> None:
        """Have the reader read the stream: something there was not put in here."""
        self.overflowed = True
        self._news.set()

    def clear(self) -> None:
        """Forget the items, and that there were too many."""
        self._items.clear()
        self.overflowed = False

    def close(self) -> None:
        """End the feed; what is in the buffer can still be read."""
        self.closed = True
        self._news.set()

    async def take(self, within: float) -> list[T]:
        """Return all items as soon as there are any; [] after `within` seconds, and at the end."""
        if not self._items and not self.closed and not self.overflowed:
            self._news.clear()
            try:
                # Before Python 3.12 wait_for forgets a cancellation that comes together with the news.
                async with asyncio.timeout(within):
                    await self._news.wait()
            except TimeoutError:
                return []
        taken = list(self._items)
        self._items.clear()
        return taken


class LiveFeeds:
    """Fills the feeds of open requests. Closes those of a tree that is erased, and all when the gateway drains."""

    def __init__(self, tail: LiveTail) -> None:
        self.tail = tail
        tail.on_erased = self.close_tree
        tail.on_newer = self.reread_tree
        self._feeds: set[tuple[str, Feed[Any]]] = set()
        """The open feeds, each with the tree that it follows."""
        self.draining = False

    @contextmanager
    def follow(self, run: str, feed: Feed[Any]) -> Iterator[None]:
        """Put every entry of the run and of all runs below it into `feed` while the block runs."""

        def on_entry(stored: Stored) -> None:
            # The rest of the tree is left out: a stream that has nothing to show sends pings.
            if is_within(stored.entry.run, run):
                feed.put(stored)

        tree = tree_of(run)
        following = (tree, feed)
        self._feeds.add(following)
        try:
            with self.tail.listen(tree, on_entry):
                if self.draining:
                    feed.close()
                yield
        finally:
            self._feeds.discard(following)

    def last_live(self, tree: str) -> int:
        """Return the sequence of the tree's last entry that was live here, 0 where that was long ago."""
        return self.tail.last_live(tree)

    def close_tree(self, tree: str) -> None:
        """Close the feeds of a tree that was erased: nothing will happen in it any more."""
        for followed, feed in self._feeds:
            if followed == tree:
                feed.close()

    def reread_tree(self, tree: str) -> None:
        """Have the followers of a tree read its journals: an entry there cannot be handed to them."""
        for followed, feed in self._feeds:
            if followed == tree:
                feed.overflow()

    def drain(self) -> None:
        """Close all feeds; their streams ask the clients to come back."""
        self.draining = True
        for _, feed in self._feeds:
            feed.close()


log = logging.getLogger("cadre.gateway")

_BUS_PAUSE_SECONDS = 1.0
_PAGE_ENTRIES = 16
"""Each reader, however slow, holds one page."""


class Notice(Enum):
    """A message to a reader in addition to the run's events."""

    IDLE = auto()
    """Nothing has happened for a while."""
    UNREACHABLE = auto()
    """NATS does not answer; the follower tries again."""
    DRAINING = auto()
    """The gateway stops; nothing follows."""


class EndOfRun(NamedTuple):
    """The run has ended; nothing follows."""

    state: State


class Follower:
    """Yields the entries of a run and of all runs below it behind sequence `after`.

    `feed` is to be filled by LiveFeeds and with the run's deltas; `idle_seconds` without news are noticed. An entry
    that only a newer version can read is left out, unless `all_entries` are needed. `until` is the run below whose end
    it follows to, where that is another one.
    """

    def __init__(  # noqa: PLR0913 - what is followed, and how far
        self,
        lookup: RunLookup,
        feeds: LiveFeeds,
        run: str,
        after: int,
        *,
        idle_seconds: float,
        all_entries: bool = False,
        until: str = "",
    ) -> None:
        self.feed: Feed[Stored | Delta] = Feed()
        self._lookup = lookup
        self._feeds = feeds
        self._run, self._until = run, until or run
        self._last = after
        """Sequence of the last entry handed out."""
        self._idle_seconds = idle_seconds
        self._all_of = run if all_entries else None
        self._state: State | None = None
        """The final state of the run, once it has ended."""

    def on_delta(self, delta: Delta) -> None:
        """Put a piece of an answer into the feed; when that is full the piece is lost."""
        if is_within(delta.run, self._run):
            self.feed.put(delta, may_be_lost=True)

    async def items(self) -> AsyncIterator[Stored | Delta | Notice | EndOfRun]:
        """Runs to the end of the run, until it is erased, or until the gateway drains. Raises NewerSchema."""
        while self._state is None:
            try:
                async for stored in self._history():
                    yield stored
                # Closed halfway through the history, what is live by now lies behind a gap.
                if not self.feed.closed:
                    async for item in self._live():
                        yield item
            except (RetryableError, TimeoutError) as error:
                log.debug("events of %s: %s", self._run, error)
                yield Notice.UNREACHABLE
                await asyncio.sleep(_BUS_PAUSE_SECONDS)
            except Problem as problem:
                log.debug("events of %s: %s", self._run, problem)
                return  # it was erased: a client that comes back gets the problem
            if self.feed.closed and self._state is None:
                if self._feeds.draining:
                    yield Notice.DRAINING
                return
        yield EndOfRun(self._state)

    async def _history(self) -> AsyncIterator[Stored]:
        # Before the first read: what comes from now on is in the feed, what was before is in the journals.
        self.feed.clear()
        # An end known by now is in what is read below; one that is learnt of later may still be in the feed.
        summary = await self._lookup.find(self._until)
        ended = summary.state if summary.finished else None
        tree = tree_of(self._run)
        # What was live before the feed was cleared is read here: a replica, or a new leader, may lag behind it.
        at_least = max(self._feeds.last_live(tree), await self._lookup.history.newest(tree))
        pages = self._lookup.history.lean_pages(
            tree, self._last, at_least=at_least, entries=_PAGE_ENTRIES, all_of=self._all_of
        )
        async for page in pages:
            for stored in page:
                if self._is_news(stored):
                    yield stored
                if self._state is not None or self.feed.closed:
                    return
        self._state = ended

    async def _live(self) -> AsyncIterator[Stored | Delta | Notice]:
        """Return when the run has ended, the feed is closed, or the buffer did not suffice."""
        while self._state is None:
            taken = await self.feed.take(self._idle_seconds)
            if not taken and not self.feed.closed and not self.feed.overflowed:
                yield Notice.IDLE
            for item in taken:
                if isinstance(item, Delta) or self._is_news(item):
                    yield item
                if self._state is not None:
                    return
            if self.feed.closed or self.feed.overflowed:
                return

    def _is_news(self, stored: Stored) -> bool:
        """Take note of the entry; true when it is to be handed out."""
        is_new = stored.seq > self._last
        self._last = max(self._last, stored.seq)
        self._state = self._state or end_state(stored.entry, self._until)
        return is_new and is_within(stored.entry.run, self._run)
