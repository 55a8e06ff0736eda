"""Feeds of what happens in runs from now on, each a bounded buffer for one reader who may be slow; and how all end."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from cadre.adapters.nats.reading.tail import LiveTail
from cadre.ports import Stored
from cadre.protocol.topology import is_within, tree_of

T = TypeVar("T")

MAX_ITEMS = 256


class Feed(Generic[T]):
    """Buffers items for one reader; it never holds the source up."""

    def __init__(self, limit: int = MAX_ITEMS) -> None:
        self._items: deque[T] = deque()
        self._limit = limit
        self._news = asyncio.Event()
        self.overflowed = False
        """Whether an item that may not be lost found no room: it has to be read from the stream instead."""
        self.closed = False

    def put(self, item: T, *, may_be_lost: bool = False) -> None:
        """Adds an item; without room it is lost, and unless it may be, the feed has overflowed."""
        if len(self._items) < self._limit:
            self._items.append(item)
        elif not may_be_lost:
            self.overflow()
        self._news.set()

    def overflow(self) -> None:
        """Has the reader read the stream: something there was not put in here."""
        self.overflowed = True
        self._news.set()

    def clear(self) -> None:
        """Forgets the items, and that there were too many."""
        self._items.clear()
        self.overflowed = False

    def close(self) -> None:
        """Ends the feed; what is in the buffer can still be read."""
        self.closed = True
        self._news.set()

    async def take(self, within: float) -> list[T]:
        """All items as soon as there are any; [] after `within` seconds, and at the end."""
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
        """Puts every entry of the run and of all runs below it into `feed` while the block runs."""

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
        """Closes the feeds of a tree that was erased: nothing will happen in it any more."""
        for followed, feed in self._feeds:
            if followed == tree:
                feed.close()

    def reread_tree(self, tree: str) -> None:
        """Has the followers of a tree read its journals: an entry there cannot be handed to them."""
        for followed, feed in self._feeds:
            if followed == tree:
                feed.overflow()

    def drain(self) -> None:
        """Closes all feeds; their streams ask the clients to come back."""
        self.draining = True
        for _, feed in self._feeds:
            feed.close()
