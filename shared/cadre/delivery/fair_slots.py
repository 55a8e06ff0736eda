"""Places to work at, in turn by tree: a tree with a thousand records in hand waits between them like any other."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

WINDOW = 2
"""Messages in hand per place to work at: among those that wait, turns can be given."""


class Slots:
    """At most `size` at work at once, whatever number of queues they come from.

    `queues` says how many share it: what one of them may ask the server for at once follows from that.
    A slot of `within` is taken as well, if given.
    """

    def __init__(self, size: int, *, queues: int = 1, within: Slots | None = None) -> None:
        self.size = size
        self.share = max(1, WINDOW * size // queues)
        self._within = within
        self._free = size
        self._in_hand = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._hungry: list[Callable[[], None]] = []

    @property
    def room(self) -> int:
        """How many more messages may be asked for."""
        return max(0, WINDOW * self.size - self._in_hand)

    def when_room(self, call: Callable[[], None]) -> None:
        """Calls it once, when a message in hand has been done with."""
        if call not in self._hungry:
            self._hungry.append(call)

    def hold(self) -> None:
        """One more message is in hand, at work or waiting for its turn."""
        self._in_hand += 1

    def let_go(self) -> None:
        self._in_hand -= 1
        hungry, self._hungry = self._hungry, []
        for call in hungry:
            call()

    def keep(self, left: asyncio.Future[Any]) -> None:
        """To be called inside: what is `left` at work keeps a slot, and counts as in hand, until it is done."""

        def done(_: object) -> None:
            self.let_go()
            self._give_back()

        self.hold()
        self._free -= 1
        left.add_done_callback(done)

    @asynccontextmanager
    async def turn(self, tree: str) -> AsyncIterator[None]:
        """Inside, a slot is held; the trees that wait get theirs one after the other."""
        await self._take(tree)
        try:
            if self._within is None:
                yield
            else:
                async with self._within.turn(tree):
                    yield
        finally:
            self._give_back()

    async def _take(self, tree: str) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tree, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back()  # it was given just now
            raise

    def _give_back(self) -> None:
        while self._waiting and self._free >= 0:
            tree, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[tree] = turns  # behind all others that wait
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
