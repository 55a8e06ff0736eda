"""Feeds of what happens in runs from now on, and how all of them end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cadre.adapters.nats.reading.tail import LiveTail
from cadre.ports import Stored
from cadre.protocol.topology import is_within, tree_of
from cadre_gateway.requests.feed import Feed


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
