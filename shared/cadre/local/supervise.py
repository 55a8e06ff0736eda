"""Keeps child processes alive: starts them, copies their output, restarts them, stops them."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cadre.adapters import die_with_parent
from cadre.errors import CommandFailed, ExitCode
from cadre.local.fork_server import ForkedProcess, ForkServer

QUICK_DEATH_SECONDS = 5.0
"""A process that dies sooner than this has died at once."""

MAX_QUICK_DEATHS = 5
"""The number of immediate deaths in a row after which a process that has never been ready is given up."""

_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.2, 10.0
_LAST_OUTPUT_SECONDS = 1.0
_PROBE_PAUSE_SECONDS = 0.2

LIVENESS_PERIOD_SECONDS = 10.0
LIVENESS_FAILURES = 6
"""The number of unanswered liveness probes in a row after which a process counts as hanging, as in a rendered pod."""

STARTUP_FAILURES = 30
"""The same for a process that has not answered any: it may still be starting."""

_PROGRESS_SECONDS = 10.0
"""Seconds between two reports of what is not ready yet."""


@dataclass(frozen=True)
class ProcessSpec:
    """A process that is to be kept alive: how it is started, and how to find out whether it is ready."""

    name: str
    argv: Sequence[str]
    environment: dict[str, str]
    ready: Callable[[], Awaitable[str | None]]
    """Returns None when it is ready, else what it lacks."""
    log: Path
    files: Callable[[], Sequence[Path]] = tuple
    """Returns the files of its user that it is started from. Raises SetupError for one that is wrong."""
    descriptors: Sequence[int] = ()
    """Open files of this process that it inherits, under the same numbers."""
    alive: Callable[[], Awaitable[bool]] | None = None
    """A liveness probe; None: it is not probed, and ends on its own or not at all."""
    module: str = ""
    """The Python module that it runs, which a fork server may start; "": it is another program."""


@dataclass
class ManagedProcess:
    """A service, and the process that runs it at the moment."""

    service: ProcessSpec
    on_line: Callable[[str, str], None]
    """Called with (name, line) for everything the process writes."""
    on_start: Callable[[], None]
    """Called after each start."""
    forks: ForkServer | None = None
    """Starts Python modules; None: each is started on its own."""
    pid: int | None = None
    has_been_ready: bool = False
    """It has been ready once: then it is started again however often it dies."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _process: asyncio.subprocess.Process | ForkedProcess | None = None

    async def keep_alive(self) -> None:
        """Run the service, again and again, until it is stopped.

        Raises CommandFailed for one that has never been ready: when it died at once too often, or cannot start as it
        is configured. A tool that kills its service must not end the others, so one that was ready is never given up.
        """
        deaths = refusals = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            refusals = refusals + 1 if code == ExitCode.USAGE else 0
            if refusals > 1 and not self.has_been_ready:
                # A file or a setting is wrong. A port may be taken for a moment, hence the second try.
                raise CommandFailed(f"{self.service.name}: {self._last_line()}", ExitCode.USAGE)
            deaths = deaths + 1 if time.monotonic() - began < QUICK_DEATH_SECONDS else 1
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            if deaths >= MAX_QUICK_DEATHS and not self.has_been_ready:
                raise CommandFailed(f"{self.service.name} died {deaths} times in a row ({how}): {self._last_line()}")
            pause = min(_FIRST_PAUSE_SECONDS * 2 ** min(deaths - 1, 10), _MAX_PAUSE_SECONDS)
            what = "ended" if code == 0 else "died"
            self.on_line(self.service.name, f"{what} ({how}); starting it again in {pause:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _run_once(self) -> int:
        """Run the process once and return its exit code, as soon as it has ended itself.

        What it has started and left behind is killed: it may hold the port that the next one needs.
        """
        # A pipe of our own: asyncio would wait for its end, which such a process may keep open.
        out, its_out = os.pipe()
        try:
            self._process = process = await self._spawn(its_out)
        except BaseException:
            os.close(out)
            raise
        finally:
            os.close(its_out)
        self.pid = process.pid
        self.on_start()
        if self._stopping.is_set():
            self.stop()
        copying = asyncio.create_task(self._copy_output(out))
        probing = asyncio.create_task(self._probe_liveness())
        try:
            return await process.wait()
        finally:
            self.pid = None
            probing.cancel()
            self._kill_group()
            # A process that left the group may hold the pipe open.
            await asyncio.wait([copying], timeout=_LAST_OUTPUT_SECONDS)
            copying.cancel()

    async def _spawn(self, output: int) -> asyncio.subprocess.Process | ForkedProcess:
        service = self.service
        if self.forks is not None and service.module:
            arguments = service.argv[service.argv.index(service.module) + 1 :]
            try:
                return await self.forks.fork(
                    service.module, arguments, service.environment, output, service.descriptors
                )
            except OSError as error:
                self.on_line(service.name, f"started on its own: {error}")
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(die_with_parent.__file__), str(os.getpid())),
            *service.argv,
            env=service.environment,
            pass_fds=tuple(service.descriptors),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C goes to the supervisor alone: it stops the others in order.
            start_new_session=True,
        )

    async def _probe_liveness(self) -> None:
        """Kill the process when it hangs: it has not answered for a number of probes in a row."""
        failures, allowed = 0, STARTUP_FAILURES
        while self.service.alive is not None:
            await asyncio.sleep(LIVENESS_PERIOD_SECONDS)
            if await self.service.alive():
                failures, allowed = 0, LIVENESS_FAILURES
                continue
            failures += 1
            if failures >= allowed:
                self.on_line(self.service.name, f"hangs: {failures} liveness probes unanswered; killed")
                self._kill_group()
                return

    def _kill_group(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _copy_output(self, pipe: int) -> None:
        reader, rest = asyncio.StreamReader(), b""
        with self.service.log.open("ab", buffering=0) as log, os.fdopen(pipe, "rb", buffering=0) as source:
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
            while chunk := await reader.read(65536):
                # A full disk takes no line, but the pipe is read on: a process that cannot write to it dies.
                with contextlib.suppress(OSError):
                    log.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._emit(line)
            if rest:
                self._emit(rest)

    def _emit(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text:
            self.tail.append(text)
            self.on_line(self.service.name, text)

    def _last_line(self) -> str:
        if not self.tail:
            return "it wrote nothing"
        return f"{self.tail[-1].removeprefix('cadre: ')} (all in {self.service.log})"

    def stop(self) -> None:
        """Ask the process to end in its own time; it is not started again."""
        self._stopping.set()
        self.restart()

    def restart(self) -> None:
        """Ask the process to end in its own time; unless it is stopped, it is started again then."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """End the process and those it started, now."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            self._kill_group()


async def until_ready(
    children: Sequence[ManagedProcess],
    within: float,
    on_line: Callable[[str, str], None] = lambda name, line: None,
) -> None:
    """Wait until each has been ready once. Raises CommandFailed naming those that are not after `within` seconds.

    `on_line` is called now and then with (name, what it lacks) for those that are waited for.
    """
    lacks = {child.service.name: "" for child in children}

    async def probe(child: ManagedProcess) -> None:
        while lack := await child.service.ready():
            lacks[child.service.name] = lack
            await asyncio.sleep(_PROBE_PAUSE_SECONDS)
        child.has_been_ready = True
        del lacks[child.service.name]

    async def report() -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            for name, lack in lacks.items():
                on_line(name, f"not ready yet: {lack or 'does not answer'}")

    reporting = asyncio.create_task(report())
    try:
        async with asyncio.timeout(within), asyncio.TaskGroup() as group:
            for child in children:
                group.create_task(probe(child))
    except TimeoutError as error:
        what = "; ".join(f"{name}: {lack or 'does not answer'}" for name, lack in lacks.items())
        raise CommandFailed(f"not ready after {within:g} s: {what}; --wait gives more time") from error
    finally:
        reporting.cancel()
