"""Warm interpreters: one per run at most, in one task's hands at a time, the longest unused closed first; and
whether a CodeCall asks for just what comes next in one."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from msgspec.structs import replace

from cadre.delivery.code_history import BlockHistory, cut_history
from cadre.delivery.codec import encode
from cadre.delivery.ended_runs import EndedRuns
from cadre.protocol.code import CodeExchange
from cadre.protocol.messages import CodeAnswer, CodeCall, CodeFinished, CodeYielded
from cadre.protocol.topology import is_within
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.interpreters.session import InterpreterSession

log = logging.getLogger("cadre.sandbox")

T = TypeVar("T")


class HandoverListener(Protocol):
    """Lets other processes hand over calls of runs whose interpreters are in this one."""

    async def listen(self, run: str) -> None:
        """Accept what others are delivered for the run from now on."""

    async def forget(self, run: str) -> None:
        """Accept nothing for the run any more."""


class RunInterpreter:
    """A run's interpreter in this process, if it has one, and where that is."""

    def __init__(self, run: str, pool: WarmPool) -> None:
        self.run = run
        self.session: InterpreterSession | None = None
        self._served: Served | None = None
        self.since = 0.0
        """The time when it was left warm, by the clock of the event loop."""
        self._pool = pool
        self._work: asyncio.Task[Any] | None = None

    @property
    def served(self) -> Served | None:
        """Return what it answered last, which says where it is; None when there is no living interpreter."""
        return self._served if self.session is not None and self.session.alive else None

    async def start(self) -> InterpreterSession:
        """Start a new interpreter in the place of the former one. Raises SandboxError."""
        await self.close()
        self.session = await self._pool.open()
        return self.session

    async def answered(self, served: Served) -> None:
        """Note the call that was answered, and let others hand over what comes next for the run."""
        self._served = served
        if self.served is not None and self._pool.listener is not None:
            # Before the answer is sent: what the run says to it must find its way back.
            await self._pool.listener.listen(self.run)

    async def work(self, doing: Coroutine[Any, Any, T]) -> T | None:
        """Do this for the run, open to `interrupt`; None when it was interrupted."""
        self._work = work = asyncio.create_task(doing, name=f"code of {self.run}")
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise
        finally:
            self._work = None
        return None if work.cancelled() else work.result()

    def interrupt(self) -> None:
        """Stop what is being done for the run."""
        if self._work is not None:
            self._work.cancel()

    async def close(self) -> None:
        """End the interpreter, if there is one."""
        session, self.session, self._served = self.session, None, None
        if session is not None:
            self._pool.closed()
            if self._pool.listener is not None:
                await self._pool.listener.forget(self.run)
            await session.close()


class WarmPool:
    """Interpreters at work, and those that wait for their runs.

    Args:
        most: interpreters at once, at work or kept; at least as many as runs are worked for at once.
        idle_seconds: how long one is kept for a run that does not come back.
        listener: learns which runs have one; None where there is one process only.
    """

    def __init__(
        self, sandbox: Sandbox, most: int, idle_seconds: float, listener: HandoverListener | None = None
    ) -> None:
        self.sandbox = sandbox
        self.listener = listener
        self._most = most
        self._idle = idle_seconds
        self._warm: OrderedDict[str, RunInterpreter] = OrderedDict()
        """Interpreters that wait, by run; the one that was left longest ago comes first."""
        self._leased: dict[str, RunInterpreter] = {}
        self._locks: dict[str, _Lock] = {}
        self._open = 0
        self._ended = EndedRuns()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> int:
        """Return how many interpreters are at work."""
        return max(0, self._open - len(self._warm))

    @property
    def warm(self) -> list[str]:
        """The runs whose interpreters wait for them, the one left longest ago first."""
        return list(self._warm)

    async def can_continue(self, call: CodeCall) -> bool:
        """Return whether the call is best served here: its run is being worked for, or its interpreter is warm.

        An interpreter that cannot go on with the call is closed: the run has gone on without it."""
        if call.run in self._locks:
            return True
        warm = self._warm.get(call.run)
        if warm is None:
            return False
        if warm.served is not None and warm.served.leads_to(call):
            return True
        await self._warm.pop(call.run).close()
        return False

    @asynccontextmanager
    async def lease(self, run: str) -> AsyncIterator[RunInterpreter]:
        """Lease the run's interpreter to one task at a time; it is kept if it is warm at the end."""
        lock = self._locks.setdefault(run, _Lock())
        lock.users += 1
        try:
            async with lock.lock:
                interpreter = self._warm.pop(run) if run in self._warm else RunInterpreter(run, self)
                self._leased[run] = interpreter
                try:
                    yield interpreter
                finally:
                    del self._leased[run]
                    await self._take_back(interpreter)
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[run]

    async def _take_back(self, interpreter: RunInterpreter) -> None:
        if interpreter.served is None or self.is_over(interpreter.run):
            await interpreter.close()
            return
        interpreter.since = asyncio.get_running_loop().time()
        self._warm[interpreter.run] = interpreter
        self._set_timer()

    async def open(self) -> InterpreterSession:
        """Open a session; the interpreter that was left longest ago makes room for it. Raises SandboxError."""
        while self._open >= self._most and self._warm:
            _, oldest = self._warm.popitem(last=False)
            log.debug("the interpreter of %s makes room", oldest.run)
            await oldest.close()
        self._open += 1
        try:
            return await self.sandbox.open()
        except BaseException:
            self._open -= 1
            raise

    def closed(self) -> None:
        """Note that a session was closed."""
        self._open -= 1

    def interrupt(self, ended: str) -> None:
        """End all that is done or kept for the run, and for those below it."""
        self._ended.add(ended)
        for run, interpreter in self._leased.items():
            if is_within(run, ended):
                interpreter.interrupt()
        for run in [run for run in self._warm if is_within(run, ended)]:
            self._soon(self._warm.pop(run).close())

    def is_over(self, run: str) -> bool:
        """Return whether the run, or one above it, is known to have ended."""
        return self._ended.covers(run)

    # --- those whose runs do not come back

    def _set_timer(self) -> None:
        if self._timer is None and self._warm:
            oldest = next(iter(self._warm.values()))
            self._timer = asyncio.get_running_loop().call_at(oldest.since + self._idle, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for run in [run for run, warm in self._warm.items() if warm.since + self._idle <= now]:
            log.debug("the interpreter of %s was not used for %g s", run, self._idle)
            self._soon(self._warm.pop(run).close())
        self._set_timer()

    def _soon(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all interpreters that are kept."""
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


class Position(NamedTuple):
    """A point in the code of a run: a block, and how many exchanges it has behind it.

    Block and number do not identify the history of the exchanges. Two replicas may both have run the block, and the run
    took the other one's answer, with other clock readings; or a power cut has set the run back (docs/deploy.md), and it
    went another way under the same ids. An interpreter of the one history must not go on with the other. So the history
    is part of the position. Its digest costs the same however long the block is: calls carry the exchanges since the
    last stored piece only, and the reference to that piece is a digest itself.
    """

    block: str
    exchange: int
    history: str
    """Digest of the code, of the reference to the variables, and of all exchanges."""

    @classmethod
    def of(cls, call: CodeCall) -> Self:
        """Return the point that the call goes on from; the same however much of the history the call carries itself."""
        history, _ = cut_history(call.block, BlockHistory(call.before, call.earlier, call.exchanges))
        digest = hashlib.sha256(encode([call.block, call.code, call.snapshot, *history])).hexdigest()
        return cls(call.block, call.done, digest)


@dataclass(frozen=True, slots=True)
class Served:
    """The call that an interpreter answered last, which says where the interpreter is."""

    call: CodeCall
    position: Position
    answer: CodeAnswer
    notes: tuple[str, ...] = ()
    """Messages to the model once the block has ended: values that differ from what was meant."""
    passed: frozenset[Position] = frozenset()
    """Earlier positions of the interpreter in the same block."""

    def knows(self, position: Position) -> bool:
        """Return whether the call at this position has been answered by the interpreter."""
        return position == self.position or position in self.passed

    def resumes(self, call: CodeCall, position: Position) -> bool:
        """Return whether the block waits in the interpreter for exactly the replies of the call, which is at
        `position`.
        """
        answer = self.answer
        if not isinstance(answer, CodeYielded):
            return False
        if (position.block, position.exchange) != (self.position.block, self.position.exchange + 1):
            return False
        replies = call.exchanges[-1].replies
        exchange = CodeExchange(calls=answer.calls, replies=replies, clock=answer.clock)
        return position == Position.of(replace(self.call, exchanges=[*self.call.exchanges, exchange]))

    def follows(self, call: CodeCall) -> bool:
        """Return whether the interpreter is between blocks, and has the variables that the call asks for."""
        return isinstance(self.answer, CodeFinished) and call.snapshot == self.answer.snapshot

    def leads_to(self, call: CodeCall) -> bool:
        """Return whether the interpreter has answered the call, or can go on with it from where it is."""
        position = Position.of(call)
        return self.knows(position) or self.resumes(call, position) or self.follows(call)
