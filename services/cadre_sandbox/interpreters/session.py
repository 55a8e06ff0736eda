"""One run's interpreter: a block goes in, an outcome comes out within its time, even if the code does not cooperate."""

import asyncio
import signal
from dataclasses import replace
from typing import Any

from cadre_sandbox.interpreters.contract import (
    BlockLimits,
    BlockRequest,
    CallResult,
    Failed,
    Finished,
    InterpreterLost,
    Outcome,
    SandboxError,
    Used,
    Yielded,
)
from cadre_sandbox.interpreters.decode import (
    SavedVariables,
    block_order,
    check_values,
    logs_of,
    not_saved,
    off_loop,
    outcome_of,
    results_order,
    saved_variables,
)
from cadre_sandbox.interpreters.process import InterpreterGone, InterpreterProcess
from cadre_sandbox.wire.frames import NO_MEMORY, NO_TIME, BrokenFrame, Frame

_GRACE_SECONDS = 0.4
"""Seconds beyond the limit until the interpreter is killed: time for the code to stop."""

_SAVING_SECONDS = 5.0
"""Seconds from the end of the code until the interpreter is killed: time to save its variables."""

_TICK_SECONDS = 0.2
"""Seconds between looks at what the code uses."""

_EARLY_SECONDS = 0.01
"""Seconds by which a look may come too early."""

_TAKE_SECONDS = 20.0
"""Seconds to take a request, and to restore a snapshot."""

_PAUSED_SECONDS = 5.0
"""Seconds beyond _TAKE_SECONDS after which this process must have been stopped itself: no fault of the interpreter."""

_KILL_SIGNALS = (-signal.SIGKILL, 128 + signal.SIGKILL)


class BlockStopped(Exception):
    """The outside ends the block: it took more than it may, or its variables cannot be read."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class InterpreterSession:
    """One interpreter and the blocks that it runs; not for two tasks at once.

    After an outcome that is not `alive`, or `InterpreterLost`, it runs nothing more.
    """

    def __init__(self, process: InterpreterProcess, most: BlockLimits) -> None:
        self._process = process
        self._most = most
        self._number = 0
        self._fresh = True
        self._snapshot: bytes | None = None
        self._limits = most
        self._used = 0.0
        self._cpu_before = 0.0
        self._logs = ""
        self._waits_for: int | None = None
        self._offered: set[str] = set()
        self._now = asyncio.get_running_loop().time

    @property
    def alive(self) -> bool:
        """Return whether the interpreter can run more."""
        return self._process.alive

    @property
    def pid(self) -> int:
        """Pid of the interpreter."""
        return self._process.pid

    @property
    def snapshot(self) -> bytes | None:
        """The variables after the last block; None before the first one has ended."""
        return self._snapshot

    async def execute(self, request: BlockRequest) -> Outcome:
        """Run a block until its end or its first calls. Raises SandboxError for misuse, ValueError for an invalid
        signature."""
        if self._waits_for is not None:
            raise SandboxError("the block before waits for results: resume it")
        self._limits = _within(request.limits, self._most)
        self._number += 1
        self._used, self._logs = 0.0, ""
        restore = self._fresh and request.snapshot is not None
        header, blobs = block_order(request, self._limits, self._number, restore)
        if self._fresh:
            self._snapshot = request.snapshot
            header["bounds"] = self._process.bounds(self._limits)
        self._fresh = False
        self._offered = {function.name for function in request.functions}
        self._cpu_before = self._process.cpu_seconds()
        return await self._turn(header, blobs, restore)

    async def resume(self, results: list[CallResult]) -> Outcome:
        """Give the waiting block its results, and run it until its end or its next calls. Raises SandboxError for
        misuse."""
        if self._waits_for is None:
            raise SandboxError("no block waits for results")
        if len(results) != self._waits_for:
            raise SandboxError(f"the block waits for {self._waits_for} results, not {len(results)}")
        self._waits_for = None
        header, blobs = results_order(results)
        return await self._turn(header, blobs, False)

    async def gone(self) -> None:
        """Wait until the interpreter has ended, for any reason."""
        await self._process.gone()

    async def close(self) -> None:
        """End the interpreter."""
        await self._process.close()

    async def _turn(self, header: dict[str, Any], blobs: list[bytes], restore: bool) -> Outcome:
        """Send a frame, and return the outcome that the interpreter comes to."""
        if not self._process.alive:
            return await self._lost()
        self._process.thaw()
        begun = asyncio.get_running_loop().time()
        try:
            try:
                async with asyncio.timeout(_TAKE_SECONDS):
                    await self._process.send(header, blobs)
                    if restore and (refused := self._refusal(await self._next())):
                        return await self._ended(refused)
            except TimeoutError:
                if asyncio.get_running_loop().time() - begun > _TAKE_SECONDS + _PAUSED_SECONDS:
                    await self._process.close()
                    return InterpreterLost(reason="the sandbox itself was stopped for a while")
                raise _not_taken(restore) from None
            return await self._compute()
        except asyncio.CancelledError:
            await self._process.close()
            raise
        except BlockStopped as stop:
            return await self._ended(stop)
        except BrokenFrame as broken:
            return await self._ended(BlockStopped("Crashed", f"The code broke the interpreter: {broken}."))
        except InterpreterGone:
            return await self._lost()
        finally:
            self._process.freeze()

    def _refusal(self, frame: Frame) -> BlockStopped | None:
        if frame.header.get("kind") == "restored":
            return None
        return BlockStopped(
            "SnapshotUnreadable",
            f"The variables of earlier code could not be restored: {frame.header.get('why')}"[:1000] + ".",
        )

    async def _compute(self) -> Outcome:
        since = self._now()
        try:
            frame = await self._watched(since)
            if frame.header.get("kind") == "yielded":
                saved = None
            else:
                self._logs = logs_of(frame, self._limits)
                saved = await self._saved()
        finally:
            self._used += self._now() - since
        self._check_threads()
        if await self._process.full(self._limits):
            raise BlockStopped("FileLimit", f"The files were more than {self._limits.file_mb} MB, or too many.")
        return await self._outcome(frame, saved)

    async def _saved(self) -> SavedVariables:
        """Return the variables after the block. If saving them takes too long, the block's outcome stays the same."""
        try:
            async with asyncio.timeout(_SAVING_SECONDS):
                frame = await self._next()
            return saved_variables(frame, self._snapshot)
        except TimeoutError:
            return not_saved("no time was left", self._snapshot)

    async def _outcome(self, frame: Frame, saved: SavedVariables | None) -> Outcome:
        """Return the outcome in the frame. Raises BrokenFrame for what the code forged badly."""
        used = self._used_now()

        def read() -> Yielded | Finished | Failed:
            check_values(frame)
            return outcome_of(frame, saved, self._process.tier, used, self._limits)

        outcome = await off_loop(frame.size, read)
        if isinstance(outcome, Yielded):
            if not self._offered.issuperset(call.name for call in outcome.calls):
                raise BrokenFrame("a call of a function that was not offered")
            self._waits_for = len(outcome.calls)
            self._logs = outcome.logs
            return outcome
        assert saved is not None
        self._snapshot = saved.snapshot
        if not saved.kept:
            await self._process.close()
        return outcome

    async def _watched(self, since: float) -> Frame:
        """Return the next frame. Raises BlockStopped when the code takes more than it may."""
        reading = asyncio.ensure_future(self._next())
        deadline = since + self._limits.seconds - self._used + _GRACE_SECONDS
        try:
            while True:
                left = deadline - self._now()
                done, _ = await asyncio.wait({reading}, timeout=max(0.0, min(left, _TICK_SECONDS)))
                if done:
                    return reading.result()
                # The wait may have been long: what has passed by now counts.
                await self._look(deadline - self._now())
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _next(self) -> Frame:
        frame = await self._process.receive()
        if frame.header.get("n") != self._number:
            raise BrokenFrame("an answer without a request")
        return frame

    async def _look(self, left: float) -> None:
        limits = self._limits
        if left <= _EARLY_SECONDS:
            # One thread's computing takes as long as it computes: the clock is the plainer reason.
            raise BlockStopped("TimeLimit", _stopped_after(limits.seconds))
        cpu = limits.seconds if limits.cpu_seconds is None else limits.cpu_seconds
        if self._used_now().cpu_seconds > cpu + _GRACE_SECONDS:
            raise BlockStopped("CpuLimit", f"The code was stopped after {cpu:g} s of computing in all its threads.")
        self._check_threads()
        if await self._process.full(limits):
            text = f"The code was stopped: its files are more than {limits.file_mb} MB, or too many."
            raise BlockStopped("FileLimit", text)

    def _check_threads(self) -> None:
        if self._process.has_too_many_threads(self._limits):
            text = f"The code was stopped: it has more than {self._limits.threads} threads."
            raise BlockStopped("ThreadLimit", text)

    def _used_now(self) -> Used:
        return Used(seconds=self._used, cpu_seconds=max(0.0, self._process.cpu_seconds() - self._cpu_before))

    async def _ended(self, stop: BlockStopped) -> Failed:
        """Return the outcome of a block that its interpreter does not survive. The variables are those of before the
        block, if they can still be read."""
        used = self._used_now()
        unreadable = stop.error == "SnapshotUnreadable"
        kept = "" if unreadable else " The variables are as they were before this code."
        await self._process.close()
        return Failed(
            error=stop.error,
            message=stop.message + kept,
            logs=self._logs,
            snapshot=self._snapshot,
            tier=self._process.tier,
            used=used,
        )

    async def _lost(self) -> Outcome:
        """Return the outcome when the interpreter has ended, on its own or by an outside cause."""
        try:
            code = await self._process.ended()
        except TimeoutError:
            code = -signal.SIGKILL
        if code in _KILL_SIGNALS:
            await self._process.close()
            return InterpreterLost(reason="the interpreter was killed")
        if code == NO_MEMORY:
            return await self._ended(BlockStopped("MemoryError", "The memory was full, too full to go on."))
        if code == NO_TIME:
            return await self._ended(BlockStopped("TimeLimit", _stopped_after(self._limits.seconds)))
        signalled = code - 128 if code > 128 else -code
        how = f"signal {signalled}" if signalled > 0 else f"exit code {code}"
        return await self._ended(BlockStopped("Crashed", f"The code ended the interpreter itself ({how})."))


def _not_taken(restore: bool) -> BlockStopped:
    if restore:
        text = f"The variables of earlier code could not be restored within {_TAKE_SECONDS:g} s."
        return BlockStopped("SnapshotUnreadable", text)
    return BlockStopped("Crashed", f"The interpreter did not take what it was sent within {_TAKE_SECONDS:g} s.")


def _stopped_after(seconds: float) -> str:
    return f"The code was stopped after {seconds:g} s of computing (waiting for functions is not counted)."


def _within(asked: BlockLimits, most: BlockLimits) -> BlockLimits:
    seconds = min(asked.seconds, most.seconds)
    cpu = min(value for value in (asked.cpu_seconds, most.cpu_seconds, most.seconds * most.threads) if value)
    return replace(
        asked,
        seconds=seconds,
        cpu_seconds=seconds if asked.cpu_seconds is None else cpu,
        memory_mb=min(asked.memory_mb, most.memory_mb),
        threads=min(asked.threads, most.threads),
        file_mb=min(asked.file_mb, most.file_mb),
        output_chars=min(asked.output_chars, most.output_chars),
        print_chars=min(asked.print_chars, most.print_chars),
        snapshot_mb=min(asked.snapshot_mb, most.snapshot_mb),
    )
