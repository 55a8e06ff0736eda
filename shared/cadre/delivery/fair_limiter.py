"""Limits how many messages are handled at once, fairly: trees take turns, however many messages each has waiting."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

PREFETCH = 2
"""Messages in hand per handler at work: turns can only be given among messages that wait here."""


class FairLimiter:
    """Lets `capacity` handlers work at once, for any number of queues from which their messages come.

    `queues` is the number of queues that share it. With `within`, a handler takes a place of that limiter as well.
    """

    def __init__(self, capacity: int, *, queues: int = 1, within: FairLimiter | None = None) -> None:
        self.capacity = capacity
        self.share_among(queues)
        self._within = within
        self._free = capacity
        self._in_hand = 0
        self._waiters: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._on_room: list[Callable[[], None]] = []

    def share_among(self, queues: int) -> None:
        """Take note of the number of queues that share it."""
        self.queue_share = max(1, PREFETCH * self.capacity // queues)
        """Messages that one queue may ask the server for at once."""

    @property
    def room(self) -> int:
        """Return how many more messages may be asked for."""
        return max(0, PREFETCH * self.capacity - self._in_hand)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when a message in hand is done."""
        if callback not in self._on_room:
            self._on_room.append(callback)

    def add_in_hand(self) -> None:
        """Count a message that has arrived: it is handled, or waits for its turn."""
        self._in_hand += 1

    def remove_in_hand(self) -> None:
        """Count a message that is done."""
        self._in_hand -= 1
        callbacks, self._on_room = self._on_room, []
        for callback in callbacks:
            callback()

    def hold_until_done(self, work: asyncio.Future[Any]) -> None:
        """Keep a place, and a message in hand, until `work` is done: for what its handler leaves running."""

        def done(_: object) -> None:
            self.remove_in_hand()
            self.give_back()

        self.add_in_hand()
        self._free -= 1
        work.add_done_callback(done)

    def acquire(self, tree: str) -> PlaceAtWork:
        """Return a place, to be waited for and held as a context; trees that wait get theirs one after the other."""
        return PlaceAtWork(self, self._within, tree)

    async def take(self, tree: str) -> None:
        """Wait for a place of this limiter alone."""
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(tree, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()  # it was given just now
            raise

    def give_back(self) -> None:
        """Free a place for the next one that waits."""
        while self._waiters and self._free >= 0:
            tree, turns = self._waiters.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiters[tree] = turns  # behind all others that wait
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class PlaceAtWork:
    """A context that holds a place of a limiter, and one of the limiter around it."""

    def __init__(self, limiter: FairLimiter, within: FairLimiter | None, tree: str) -> None:
        self._limiter, self._within, self._tree = limiter, within, tree

    async def __aenter__(self) -> None:
        await self._limiter.take(self._tree)
        if self._within is not None:
            try:
                await self._within.take(self._tree)
            except BaseException:
                self._limiter.give_back()
                raise

    async def __aexit__(self, *_: object) -> None:
        if self._within is not None:
            self._within.give_back()
        self._limiter.give_back()
