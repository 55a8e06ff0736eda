"""One jailed interpreter as a process: its socket, its signals, its limits, its end."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cadre_sandbox.interpreters.contract import BlockLimits, Tier
from cadre_sandbox.interpreters.decode import read_frame
from cadre_sandbox.interpreters.scratch import MEASURING_THREAD, Scratch
from cadre_sandbox.interpreters.zygote import SpawnedJail, ZygoteProcess
from cadre_sandbox.wire.frames import OWN_TASKS, PREFIX, BrokenFrame, Frame, JailOrder, encode, frame_sizes
from cadre_sandbox.wire.values import MAX_BINARY_BYTES

log = logging.getLogger("cadre.sandbox")

MEGABYTE = 1 << 20

_MAX_HEADER_BYTES = 8 * MEGABYTE
_SLACK_BYTES = MEGABYTE
_READ_BYTES = MEGABYTE
_READY_SECONDS = 30.0
_END_SECONDS = 5.0


class TierRefused(Exception):
    """The tier cannot be had here; the text says what the kernel refused."""


class DiedAtStart(TierRefused):
    """The process ended, or was silent, without giving a reason: perhaps nothing was refused at all."""


class InterpreterGone(Exception):
    """The process of the interpreter has ended."""


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """The properties that all processes of a sandbox have in common."""

    tier: Tier
    most: BlockLimits
    uid: int


class InterpreterProcess:
    """A jailed process, which is frozen while no caller waits for it."""

    def __init__(
        self,
        spawned: SpawnedJail,
        channel: socket.socket,
        plan: ProcessPlan,
        base: int,
        scratch: Scratch | None,
    ) -> None:
        self._spawned = spawned
        self._channel = channel
        self._plan = plan
        self._base = base
        self._scratch = scratch
        self._loop = asyncio.get_running_loop()
        self._alive = True
        self._reading, self._writing = asyncio.Lock(), asyncio.Lock()
        self._own_users = False
        self._max_blobs = max(plan.most.snapshot_mb * MEGABYTE, MAX_BINARY_BYTES) + _SLACK_BYTES
        self.tier = plan.tier

    @classmethod
    async def open(cls, zygote: ZygoteProcess, plan: ProcessPlan) -> Self:
        """Fork an interpreter and wait until it is locked in. Raises TierRefused, SandboxError."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        scratch = Scratch.make(plan.uid) if plan.tier == "landlock" else None
        order = JailOrder(
            number=zygote.next_number(),
            tier=plan.tier,
            uid=plan.uid,
            scratch=str(scratch.path) if scratch else "",
            memory_bytes=zygote.address_space + plan.most.memory_mb * MEGABYTE,
            file_mb=plan.most.file_mb,
            threads=plan.most.threads,
        )
        try:
            spawned = await zygote.spawn(order, theirs)
        except BaseException:
            ours.close()
            if scratch:
                scratch.remove()
            raise
        finally:
            theirs.close()
        process = cls(spawned, ours, plan, zygote.address_space, scratch)
        try:
            await process._until_ready()
        except BaseException:
            await process.close()
            raise
        return process

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                header = (await self.receive()).header
        except (InterpreterGone, BrokenFrame, TimeoutError) as error:
            raise DiedAtStart(f"the interpreter ended before it was ready: {error!r}") from None
        if header.get("kind") != "ready":
            raise TierRefused(str(header.get("why")))
        self._own_users = bool(header["user_namespace"])

    @property
    def pid(self) -> int:
        """Pid of the interpreter, as seen outside the jail."""
        return self._spawned.pid

    @property
    def closed(self) -> bool:
        """Return whether `close` was called."""
        return not self._alive

    @property
    def alive(self) -> bool:
        """Return whether the process is there: it was not closed, and has not ended."""
        return self._alive and not self._spawned.ended.done()

    async def send(self, header: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
        """Send a frame. Raises InterpreterGone."""
        async with self._writing:
            try:
                await self._loop.sock_sendall(self._channel, encode(header, blobs))
            except OSError:
                raise InterpreterGone from None

    async def receive(self) -> Frame:
        """Return the next frame of the interpreter. Raises InterpreterGone, BrokenFrame."""
        async with self._reading:
            text, body = frame_sizes(await self._read(PREFIX.size), _MAX_HEADER_BYTES, self._max_blobs)
            return await read_frame(await self._read(text), await self._read(body) if body else b"")

    async def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = await self._loop.sock_recv(self._channel, min(_READ_BYTES, size - len(data)))
            except OSError:
                piece = b""
            if not piece:
                raise InterpreterGone
            data += piece
        return bytes(data)

    def bounds(self, limits: BlockLimits) -> dict[str, int]:
        """Return the resource limits that the interpreter sets itself before it runs any code; it cannot raise them
        again."""
        bounds = {"AS": self._base + limits.memory_mb * MEGABYTE, "FSIZE": limits.file_mb * MEGABYTE}
        if self._own_users:
            bounds["NPROC"] = limits.threads + OWN_TASKS
        return bounds

    def freeze(self) -> None:
        """Stop the process and its threads: the code does not run while no caller waits for it."""
        self._signal(self._spawned.jailed, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._signal(self._spawned.jailed, signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """CPU time of all threads since the process was forked; 0 when it is gone."""
        try:
            # The clock of another process: its number inverted, and 2 for time of all threads on a CPU.
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            return 0.0

    def has_too_many_threads(self, limits: BlockLimits) -> bool:
        """Return whether it has more threads than it may. Where the jail has its own users the kernel itself refuses
        them.
        """
        if self._own_users:
            return False
        try:
            status = Path(f"/proc/{self.pid}/status").read_bytes()
        except OSError:
            return False
        return int(status.partition(b"Threads:")[2].split(maxsplit=1)[0]) > limits.threads + OWN_TASKS

    async def full(self, limits: BlockLimits) -> bool:
        """Return whether its files are more than they may be. In tier ns the file system itself refuses them."""
        if self._scratch is None:
            return False
        return await self._loop.run_in_executor(MEASURING_THREAD, self._scratch.is_over, limits.file_mb * MEGABYTE)

    async def ended(self) -> int:
        """Return the exit code once it has ended, negative for a signal; in tier ns 128 + signal. Raises
        TimeoutError."""
        async with asyncio.timeout(_END_SECONDS):
            return await asyncio.shield(self._spawned.ended)

    async def gone(self) -> None:
        """Wait until the process has ended."""
        await asyncio.shield(self._spawned.ended)

    def kill(self) -> None:
        """Kill the process and, in tier ns, the one that waits for it."""
        self._signal(self._spawned.jailed, signal.SIGKILL)
        self._signal(self._spawned.outer, signal.SIGKILL)

    async def close(self) -> None:
        """Kill the process and remove what it wrote."""
        if not self._alive:
            return
        self.kill()
        self._alive = False
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        # The event loop goes on watching the number of a socket that is closed under a reader, and would not hear the
        # next socket of that number: readers and writers learn of the end before.
        async with self._reading, self._writing:
            self._channel.close()
        for handle in (self._spawned.outer, self._spawned.jailed):
            os.close(handle)
        if self._scratch:
            try:
                # There are no more writers.
                await self.ended()
            except TimeoutError:
                log.warning("the interpreter %d has not ended within %g s", self.pid, _END_SECONDS)
            finally:
                await asyncio.to_thread(self._scratch.remove)

    def _signal(self, handle: int, number: signal.Signals) -> None:
        if self._alive:
            try:
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                return
