"""A simulated interpreter in the place of a jailed one: production sessions talk to it in frames."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from cadre_sandbox.interpreters.contract import BlockLimits, SandboxError, Tier
from cadre_sandbox.interpreters.process import InterpreterGone, InterpreterProcess
from cadre_sandbox.interpreters.session import InterpreterSession
from cadre_sandbox.wire.frames import PREFIX, Frame, decode, encode
from simulation.language import Calls, Clock, Die, Ended, Luck, Need, Variables, Work, course
from simulation.loop import EPOCH, Process

if TYPE_CHECKING:
    from simulation.world import World


class SimSandbox:
    """The sandbox in which sessions are opened: cadre_sandbox.interpreters.pool.Sandbox without a jail."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    def lacks(self, imports: Sequence[str]) -> list[str]:
        """Nothing: its language imports nothing."""
        return []

    async def open(self) -> InterpreterSession:
        """Raises SandboxError."""
        await asyncio.sleep(self._world.chance.random() * 0.02)
        if self._world.faults.happens("no-box"):
            raise SandboxError("no interpreter is to be had")
        return InterpreterSession(cast(InterpreterProcess, SimBox(self._world, self._process)), BlockLimits())


class SimBox:
    """InterpreterProcess for the language of `simulation.language`. It lives as long as its sandbox does."""

    tier: Tier = "ns"
    pid = 0

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process
        self._loop, self._faults, self._chance = world.loop, world.faults, world.chance
        self._living = True
        self.closed = False
        self._frames: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._number = 0
        self._variables = Variables()
        self._saved: bytes | None = None
        self._past: deque[dict[str, Any]] = deque()
        self._clock: deque[float] = deque()
        self._read: list[float] = []
        self._course: Generator[Need, Any, Ended] | None = None

    # --- what a session asks of it

    @property
    def alive(self) -> bool:
        return self._living and not self.closed

    async def send(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        """Raises Gone."""
        await asyncio.sleep(0)
        if not self.alive:
            raise InterpreterGone
        frame = _through_the_pipe(encode(header, blobs))
        self._later(self._chance.random() * 0.01, lambda: self._take(frame))

    async def receive(self) -> Frame:
        """Raises Gone."""
        while not self._frames:
            if not self.alive:
                raise InterpreterGone
            self._waiter = self._loop.create_future()
            await self._waiter
        return _through_the_pipe(self._frames.popleft())

    def bounds(self, limits: BlockLimits) -> dict[str, int]:
        return {}

    def freeze(self) -> None:
        """Nothing goes on in it while it waits."""

    def thaw(self) -> None:
        """It goes on when it reads what it waits for."""

    def cpu_seconds(self) -> float:
        return 0.0

    def has_too_many_threads(self, limits: BlockLimits) -> bool:
        return False

    async def full(self, limits: BlockLimits) -> bool:
        return False

    async def ended(self) -> int:
        return -signal.SIGKILL

    async def close(self) -> None:
        self.closed = True
        self._wake()
        await asyncio.sleep(0)

    # --- inside

    def _take(self, frame: Frame) -> None:
        if "results" in frame.header:
            self._go_on(_replies(frame.header["results"]))
            return
        header = frame.header
        self._number = header["n"]
        if header["restore"]:
            if self._faults.happens("unrestorable"):
                self._say({"kind": "unrestorable", "why": "it was written in another tongue"})
                return
            self._saved = frame.blobs[0]
            self._variables = msgspec.json.decode(self._saved, type=Variables)
            self._world.trace.note("restored", self._process.name)
            self._say({"kind": "restored"})
        self._past = deque(header["recorded"])
        if self._past:
            self._world.trace.note("replayed", self._process.name, len(self._past))
        self._next_clock()
        self._course = course(header["code"], self._variables, {one["name"] for one in header["functions"]})
        self._go_on(None)

    def _go_on(self, heard: Any) -> None:
        """Until it has to wait for something."""
        assert self._course is not None, "nothing to go on with"
        while True:
            try:
                need = self._course.send(heard)
            except StopIteration as stop:
                self._end(stop.value)
                return
            match need:
                case Work(seconds=seconds):
                    if self._faults.happens("code-slow"):
                        seconds = self._chance.uniform(5.0, 40.0)
                    self._later(seconds, lambda: self._go_on(None))
                    return
                case Die(of=of):
                    self._world.kill(self._process, of)
                    return
                case Luck():
                    heard = self._now()
                case Clock():
                    heard = self._clock.popleft() if self._clock else self._now()
                    self._read.append(heard)
                case Calls(made=made):
                    if not self._past:
                        self._yield(made)
                        return
                    if not self._is_recorded(made):
                        return
                    heard = _replies(self._past.popleft()["results"])
                    self._next_clock()

    def _is_recorded(self, made: list[tuple[str, dict[str, Any]]]) -> bool:
        before = [(call["name"], call["arguments"]) for call in self._past[0]["calls"]]
        if before != made:
            self._fail("ReplayDiverged", f"this time it called {made} and not {before}")
            return False
        return True

    def _yield(self, made: list[tuple[str, dict[str, Any]]]) -> None:
        calls = [{"name": name, "arguments": arguments} for name, arguments in made]
        read, self._read = self._read, []
        self._say({"kind": "yielded", "calls": calls, "clock": read, "logs": ""})

    def _end(self, ended: Ended) -> None:
        if self._past:
            self._fail("ReplayDiverged", f"this time it ended {len(self._past)} calls early")
            return
        self._variables = ended.variables
        if ended.error is not None:
            self._fail(*ended.error)
            return
        self._say(
            {
                "kind": "finished",
                "output": ended.output,
                "text": ended.output,
                "final": ended.final,
                "logs": "",
            }
        )
        self._save()

    def _fail(self, error: str, message: str) -> None:
        self._say({"kind": "failed", "error": error, "message": message, "line": 1, "source": "…", "logs": ""})
        self._save()

    def _save(self) -> None:
        self._course = None
        saved = msgspec.json.encode(self._variables)
        if saved == self._saved:
            self._say({"kind": "unchanged", "notes": []})
        else:
            self._saved = saved
            self._say({"kind": "snapshot", "notes": []}, [saved])

    def _next_clock(self) -> None:
        self._clock = deque(self._past[0]["clock"] if self._past else ())
        self._read = []

    def _now(self) -> float:
        return EPOCH + self._loop.time()

    # --- life and death

    def _say(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        self._frames.append(encode({"n": self._number, **header}, blobs))
        self._wake()

    def _later(self, seconds: float, step: Any) -> None:
        self._loop.at(seconds, self._step, step)

    def _step(self, step: Any) -> None:
        if not self.alive or not self._process.alive:
            return
        if self._faults.happens("box-killed"):
            self._living = False
            self._frames.clear()
            self._wake()
            return
        step()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _through_the_pipe(data: bytes) -> Frame:
    text, body = PREFIX.unpack(data[: PREFIX.size])
    rest = data[PREFIX.size :]
    return decode(rest[:text], rest[text : text + body])


def _replies(results: list[dict[str, Any]]) -> list[tuple[Any, str | None]]:
    return [(one["value"], one["error"]) for one in results]
