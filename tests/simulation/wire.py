"""The way between a process and the server: slow, lossy, and cut at times."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeVar

from cadre.errors import BusFull, BusUnavailable, CadreError, OutcomeUnknown
from cadre.testing.in_memory_ports import Silence
from simulation.faults import Faults
from simulation.loop import Loop, Process
from simulation.server import Server

ANSWER_WITHIN = 5.0
"""Seconds after which a client takes a request for unanswered, as the real one does."""

T = TypeVar("T")


class Ways:
    """The state that all wires of a world share."""

    def __init__(self, loop: Loop, chance: random.Random, faults: Faults, server: Server) -> None:
        self.loop, self.chance, self.faults, self.server = loop, chance, faults, server
        self.kill: Callable[[Process], None]
        """Kills the process on the spot."""
        self.least = 0.0
        """Seconds that each way takes at least."""
        self._spread = chance.choice((0.002, 0.02, 0.3, 1.5))

    def latency(self) -> float:
        if self.faults.happens("slow"):
            return self.chance.random() * 4.0
        return self.least + self.chance.random() * self._spread


class Wire:
    """One process's connection."""

    def __init__(self, process: Process, ways: Ways) -> None:
        self.process = process
        self._ways = ways
        self._loop, self._chance, self._faults = ways.loop, ways.chance, ways.faults

    async def ask(self, doing: str, operation: Callable[[], T], silence: Silence) -> T:
        """Return what the server answers. Raises what it refuses with, or `silence`: done or not, no one knows."""
        answer: asyncio.Future[T] = self._loop.create_future()
        delay = self._ways.latency()
        if self.process.cut or self._faults.happens("lost-request"):
            self._go_silent(answer, doing, silence)
            return await answer
        if self._faults.happens("late-request"):
            delay = self._chance.uniform(ANSWER_WITHIN, 2 * ANSWER_WITHIN)
            self._go_silent(answer, doing, silence)
        self._loop.at(delay, self._execute, answer, doing, operation, silence)
        result = await answer
        if silence is OutcomeUnknown and self.process.mortal and self._faults.happens("crash-behind"):
            # The most delicate of all moments: what is stored is known to no one but the one who dies.
            self._ways.kill(self.process)
            await self._loop.create_future()
        return result

    def post(self, operation: Callable[[], Any], loss: str) -> None:
        """Sends something that has no answer; `loss` names the fault that may lose it."""
        if self.process.alive and not self.process.cut and not self._faults.happens(loss):
            self._loop.at(self._ways.latency(), self._deliver, operation)

    def hear(self, callback: Callable[..., Any], *args: Any) -> None:
        """Something on its way to the process: it arrives unless the process is gone or cut off by then."""
        self._loop.at(self._ways.latency(), self._arrive, callback, args)

    def _arrive(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.process.alive and not self.process.cut:
            self._loop.call_soon(callback, *args, context=self.process.context)

    def _deliver(self, operation: Callable[[], Any]) -> None:
        if wait := self._ways.server.pause_left:
            self._loop.at(wait, self._deliver, operation)
            return
        # What a process sent before it died may have left it, or not.
        if (self.process.alive or self._chance.random() < 0.5) and not self._ways.server.is_down:
            operation()

    def _execute(self, answer: asyncio.Future[T], doing: str, operation: Callable[[], T], silence: Silence) -> None:
        if wait := self._ways.server.pause_left:
            self._loop.at(wait, self._execute, answer, doing, operation, silence)
            self._loop.at(ANSWER_WITHIN, self._no_answer, answer, doing, silence)
            return
        if not self.process.alive and self._chance.random() < 0.5:
            return
        if self._ways.server.is_down:
            # Asked again at once it says so; asked before it went down it says nothing.
            self._go_silent(answer, doing, BusUnavailable, soon=True)
            return
        if silence is OutcomeUnknown and self._faults.happens("full"):
            self._loop.at(self._ways.latency(), self._answer, answer, None, BusFull(doing, "full"), doing, silence)
            return
        try:
            result: T | None = operation()
            error: Exception | None = None
        except CadreError as refusal:
            result, error = None, refusal
        if self._faults.happens("lost-answer"):
            self._go_silent(answer, doing, silence, soon=self._chance.random() < 0.5)
            return
        self._loop.at(self._ways.latency(), self._answer, answer, result, error, doing, silence)

    def _answer(
        self, answer: asyncio.Future[Any], result: Any, error: Exception | None, doing: str, silence: Silence
    ) -> None:
        if self.process.cut:
            self._go_silent(answer, doing, silence)
        elif not answer.done() and self.process.alive:
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

    def _go_silent(self, answer: asyncio.Future[Any], doing: str, silence: Silence, *, soon: bool = False) -> None:
        delay = self._chance.random() * 0.1 if soon else ANSWER_WITHIN
        self._loop.at(delay, self._no_answer, answer, doing, silence)

    def _no_answer(self, answer: asyncio.Future[Any], doing: str, silence: Silence) -> None:
        if not answer.done() and self.process.alive:
            answer.set_exception(silence(doing, "no answer"))
