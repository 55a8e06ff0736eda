"""Executors that ask one another whether they are at work on a call, as cadre.adapters.nats.peers has them do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.wire import Wire

if TYPE_CHECKING:
    from simulation.world import World

ANSWER_WITHIN = 1.0

Has = Callable[[str], bool]


class Asked:
    """Processes that answer questions, by instance, as the server knows it; and what came of those that were asked."""

    def __init__(self) -> None:
        self.answering: dict[str, tuple[Wire, Has]] = {}
        self.unanswered: set[tuple[str, str]] = set()
        """Askers, and the calls that they got no answer about."""


class SimPeers:
    """ports.Peers of one process."""

    def __init__(self, world: World, wire: Wire) -> None:
        self._world, self._wire = world, wire

    def answer(self, has: Has) -> None:
        self._world.asked.answering[self._wire.process.name] = (self._wire, has)

    async def has_in_hand(self, tool: str, instance: str, call: str) -> bool | None:
        answer: asyncio.Future[bool] = self._world.loop.create_future()
        self._wire.post(lambda: self._ask(instance, call, answer), "lost-request")
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                held = await answer
        except TimeoutError:
            self._note("peer-silent", call)
            return None
        if held:
            self._world.trace.note("peer-at-work", call, self._wire.process.name)
        return held

    # --- at the server, and at the other end

    def _ask(self, instance: str, call: str, answer: asyncio.Future[bool]) -> None:
        other, has = self._world.asked.answering.get(instance, (None, None))
        if other is None or has is None or not other.process.alive:
            self._note("peer-gone", call)
            self._wire.hear(_say, answer, False)
        else:
            other.hear(self._answer, other, has, call, answer)

    def _answer(self, other: Wire, has: Has, call: str, answer: asyncio.Future[bool]) -> None:
        held = has(call)
        other.post(lambda: self._wire.hear(_say, answer, held), "lost-answer")

    def _note(self, how: str, call: str) -> None:
        self._world.asked.unanswered.add((self._wire.process.name, call))
        self._world.trace.note(how, call, self._wire.process.name)


def _say(answer: asyncio.Future[bool], held: bool) -> None:
    if not answer.done():
        answer.set_result(held)
