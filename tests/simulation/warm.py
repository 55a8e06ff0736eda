"""Warm interpreters of a world: a delivery changes hands, as cadre.adapters.nats.handover has it do."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from simulation.queue import SimDelivery
from simulation.wire import Wire

if TYPE_CHECKING:
    from simulation.world import World

ANSWER_WITHIN = 1.0
TRIES = 3

Take = Callable[[SimDelivery], Awaitable[bool]]


class Places:
    """The process that says it keeps the interpreter of a run, as the server knows it."""

    def __init__(self) -> None:
        self.of: dict[str, list[SimWarm]] = defaultdict(list)


class SimWarm:
    """cadre_sandbox.serving.warm_pool.HandoverListener of one process, and its word to the others."""

    def __init__(self, world: World, wire: Wire, take: Take) -> None:
        self._world, self._wire, self._take = world, wire, take

    async def listen(self, run: str) -> None:
        await asyncio.sleep(0)
        if self not in self._world.places.of[run]:
            self._world.places.of[run].append(self)

    async def forget(self, run: str) -> None:
        await asyncio.sleep(0)
        if self in self._world.places.of[run]:
            self._world.places.of[run].remove(self)

    async def hand_over(self, delivery: SimDelivery, run: str) -> bool:
        """Return whether another process has taken the delivery over."""
        for _ in range(TRIES):
            answer: asyncio.Future[bool] = self._world.loop.create_future()
            self._wire.post(lambda heard=answer: self._ask(delivery, run, heard), "lost-request")  # type: ignore[misc]
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    taken = await answer
            except TimeoutError:
                return False
            if taken:
                self._world.trace.note("handed-over", delivery.seq, self._wire.process.name)
                return True
        return False

    # --- at the server, and at the other end

    def _ask(self, delivery: SimDelivery, run: str, answer: asyncio.Future[bool]) -> None:
        able = [one for one in self._world.places.of[run] if one._wire.process.alive]
        if not able:
            self._wire.hear(_say, answer, False)
            return
        other = able[int(self._world.chance.random() * len(able))]
        other._wire.hear(other._asked, delivery.in_hands_of(other._wire), self._wire, answer)

    def _asked(self, delivery: SimDelivery, asker: Wire, answer: asyncio.Future[bool]) -> None:
        self._world.loop.create_task(self._answer(delivery, asker, answer))

    async def _answer(self, delivery: SimDelivery, asker: Wire, answer: asyncio.Future[bool]) -> None:
        taken = await self._take(delivery)
        self._wire.post(lambda: asker.hear(_say, answer, taken), "lost-answer")


def _say(answer: asyncio.Future[bool], taken: bool) -> None:
    if not answer.done():
        answer.set_result(taken)
