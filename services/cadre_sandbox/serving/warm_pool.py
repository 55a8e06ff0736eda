"""Warm interpreters: one per run at most, in one task's hands at a time, the longest unused closed first."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol

from cadre.protocol.messages import CodeCall
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.interpreters.session import Session
from cadre_sandbox.serving.ended import Ended, is_below
from cadre_sandbox.serving.position import Answer, follows, mark_of, resumes

log = logging.getLogger("cadre.sandbox")


class Ear(Protocol):
    """Hears what other processes are delivered for the runs of this one."""

    async def listen(self, run: str) -> None: ...

    async def forget(self, run: str) -> None: ...


class Seat:
    """A run's place in this process: its interpreter if it has one, and where that stands."""

    def __init__(self, run: str, keeping: Keeping) -> None:
        self.run = run
        self._keeping = keeping
        self.session: Session | None = None
        self.served: CodeCall | None = None
        """What the interpreter was asked last, and what came of it."""
        self.answer: Answer | None = None
        self.mark = ""
        self.passed: set[str] = set()
        """Marks of what it was asked in this block, and before that."""
        self.notes: list[str] = []
        """For the model, once the block in work has ended: what is wrong with what it was given."""
        self.kept: tuple[bytes, str] | None = None
        """The variables as they were stored last, and the reference to them."""
        self.work: asyncio.Task[Any] | None = None
        """Cancelled when the run is over."""
        self.since = 0.0

    @property
    def is_warm(self) -> bool:
        return self.session is not None and self.session.alive and self.answer is not None

    async def fresh(self) -> Session:
        """A new interpreter in the place of the former one. Raises SandboxError."""
        await self.close()
        self.session = await self._keeping.open()
        return self.session

    def fits(self, call: CodeCall) -> bool:
        """Whether the call is known here, or goes on just where the interpreter stands."""
        if not self.is_warm or self.served is None or self.answer is None:
            return False
        mark = mark_of(call)
        known = mark == self.mark or mark in self.passed
        return known or resumes(call, self.served, self.answer) or follows(call, self.answer)

    async def stands(self, served: CodeCall, answer: Answer) -> None:
        if self.served is not None and self.served.block == served.block:
            self.passed.add(self.mark)
        else:
            self.passed.clear()
        self.served, self.answer, self.mark = served, answer, mark_of(served)
        if self.is_warm:
            # Before the answer is sent: what the run says to it must find its way back.
            await self._keeping.ear.listen(self.run)

    async def close(self) -> None:
        session, self.session = self.session, None
        self.served = self.answer = self.kept = None
        self.mark = ""
        self.passed.clear()
        self.notes = []
        if session is not None:
            self._keeping.closed()
            await self._keeping.ear.forget(self.run)
            await session.close()


class Keeping:
    """
    Args:
        most: interpreters at once, at work or kept; at least as many as runs are worked for at once.
        idle_seconds: how long one is kept for a run that does not come back.
        ear: is told which runs have one.
    """

    def __init__(self, sandbox: Sandbox, most: int, idle_seconds: float, ear: Ear | None = None) -> None:
        self._sandbox = sandbox
        self.ear: Ear = ear or _Deaf()
        self._most = most
        self._idle = idle_seconds
        self._warm: OrderedDict[str, Seat] = OrderedDict()
        """By run; the one that was left longest ago comes first."""
        self._taken: dict[str, Seat] = {}
        self._locks: dict[str, _Lock] = {}
        self._open = 0
        self._ended = Ended()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> int:
        """Interpreters that are at work."""
        return max(0, self._open - len(self._warm))

    @property
    def warm(self) -> list[str]:
        """Runs whose interpreters wait for them."""
        return list(self._warm)

    async def has_place_for(self, call: CodeCall) -> bool:
        """Whether the call is best served here: its interpreter is warm, or its run is being worked for. One that
        stands elsewhere is closed: the run has gone on without it."""
        if call.run in self._locks:
            return True
        seat = self._warm.get(call.run)
        if seat is None or seat.fits(call):
            return seat is not None
        await self._warm.pop(call.run).close()
        return False

    @asynccontextmanager
    async def seat(self, run: str) -> AsyncIterator[Seat]:
        """The run's seat, for one task at a time. What is warm when it is left is kept."""
        lock = self._locks.setdefault(run, _Lock())
        lock.users += 1
        try:
            async with lock.lock:
                seat = self._warm.pop(run) if run in self._warm else Seat(run, self)
                self._taken[run] = seat
                try:
                    yield seat
                finally:
                    del self._taken[run]
                    await self._left(seat)
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[run]

    async def _left(self, seat: Seat) -> None:
        if not seat.is_warm or self.is_over(seat.run):
            await seat.close()
            return
        seat.since = asyncio.get_running_loop().time()
        self._warm[seat.run] = seat
        self._set_timer()

    async def open(self) -> Session:
        """Raises SandboxError."""
        while self._open >= self._most and self._warm:
            _, oldest = self._warm.popitem(last=False)
            log.debug("the interpreter of %s makes room", oldest.run)
            await oldest.close()
        self._open += 1
        try:
            return await self._sandbox.open()
        except BaseException:
            self._open -= 1
            raise

    def closed(self) -> None:
        self._open -= 1

    def interrupt(self, ended: str) -> None:
        """Ends all that is done or kept for the run, and for those below it."""
        self._ended.add(ended)
        for run, seat in self._taken.items():
            if is_below(run, ended) and seat.work is not None:
                seat.work.cancel()
        for run in [run for run in self._warm if is_below(run, ended)]:
            self._soon(self._warm.pop(run).close())

    def is_over(self, run: str) -> bool:
        return self._ended.covers(run)

    # --- those that nobody comes back to

    def _set_timer(self) -> None:
        if self._timer is None and self._warm:
            oldest = next(iter(self._warm.values()))
            self._timer = asyncio.get_running_loop().call_at(oldest.since + self._idle, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for run in [run for run, seat in self._warm.items() if seat.since + self._idle <= now]:
            log.debug("the interpreter of %s was not used for %g s", run, self._idle)
            self._soon(self._warm.pop(run).close())
        self._set_timer()

    def _soon(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Ends all that are kept."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._warm:
            self._soon(self._warm.popitem()[1].close())
        await asyncio.gather(*self._closing)


class _Lock:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class _Deaf:
    """Where there are no others to hear."""

    async def listen(self, run: str) -> None: ...

    async def forget(self, run: str) -> None: ...
