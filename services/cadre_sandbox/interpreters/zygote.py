"""The process that forks: started with an empty environment, asked over a socket, started again when it dies."""

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self

from cadre_sandbox.interpreters.contract import Python, SandboxError
from cadre_sandbox.wire.frames import JailOrder

# The folders are needed to import only; code shall neither find nor read what else is in them.
_BOOT = """
import sys
for folder in sys.argv[1].split(":"):
    sys.path.insert(0, folder)
import cadre_sandbox.jail.zygote as zygote
for folder in sys.argv[1].split(":"):
    sys.path.remove(folder)
del sys.argv[1]
zygote.main()
"""

_ENVIRONMENT = {
    "HOME": ".",
    "LANG": "C.UTF-8",
    # Address space is what is limited, and glibc takes 64 MB of it for the heap of every thread.
    "MALLOC_ARENA_MAX": "1",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": "/nonexistent",
    "PYTHONDONTWRITEBYTECODE": "1",
    # Sets come in the same order in every replica: a replay depends on it.
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
}

_FLAGS = ("-s", "-P")
"""Neither the user's packages nor the working directory."""

PRELOADED = (
    *(
        "base64",
        "bisect",
        "collections",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "enum",
        "fractions",
    ),
    *(
        "functools",
        "hashlib",
        "heapq",
        "html",
        "io",
        "itertools",
        "json",
        "math",
        "operator",
        "pathlib",
        "queue",
    ),
    *("random", "re", "secrets", "stat", "statistics", "string", "tempfile", "textwrap", "threading", "time"),
    *("typing", "unicodedata", "urllib.parse", "uuid", "zoneinfo"),
)
"""Imported once, shared by all: an import inside costs milliseconds."""

_START_SECONDS = 60.0
_MAX_MESSAGE_BYTES = 65_536


class SpawnedJail(NamedTuple):
    """A jail that was just forked: the zygote's child, and the jailed process, which in tier ns is a child of that."""

    pid: int
    outer: int
    """Pidfd of the zygote's own child."""
    jailed: int
    ended: asyncio.Future[int]
    """Exit code, negative for a signal."""


class ZygoteProcess:
    """The zygote from outside: asks it for jails, and hears when they end."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, hello: dict[str, Any]) -> None:
        self._process = process
        self._control = control
        self._next = 0
        self._spawning: dict[int, asyncio.Future[tuple[int, list[int]]]] = {}
        self._ended: dict[int, asyncio.Future[int]] = {}
        self.address_space: int = hello["address_space"]
        self.python: str = hello["python"]
        """Version of the code's Python."""
        self.modules: frozenset[str] | None = frozenset(hello["modules"]) if hello["modules"] else None
        """Names of what it has for import; None when there is too much."""
        self.alive = True
        asyncio.get_running_loop().add_reader(control, self._on_message)

    @classmethod
    async def start(cls, python: Python) -> Self:
        """Start a zygote. Raises SandboxError when this Python cannot be started as one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        folders = ":".join(dict.fromkeys((str(Path(__file__).parents[2]), _cloudpickle())))
        start = [python.executable, *_FLAGS, "-c", _BOOT, folders, str(theirs.fileno())]
        command = [*start, *PRELOADED, *python.modules]
        try:
            process = _spawn(command, theirs.fileno(), python.uid)
        except OSError as error:
            ours.close()
            raise SandboxError(f"the sandbox's Python {python.executable} cannot be started: {error}") from None
        finally:
            theirs.close()
        try:
            async with asyncio.timeout(_START_SECONDS):
                hello = await asyncio.get_running_loop().sock_recv(ours, _MAX_MESSAGE_BYTES)
            if not hello:
                raise SandboxError(
                    f"the sandbox's Python {python.executable} ended with {process.wait(5)} at its start"
                )
        except BaseException as error:
            process.kill()
            process.wait()
            ours.close()
            if isinstance(error, TimeoutError):
                raise SandboxError(
                    f"the sandbox's Python {python.executable} is not ready after {_START_SECONDS:g} s"
                ) from None
            raise
        return cls(process, ours, json.loads(hello))

    async def spawn(self, order: JailOrder, channel: socket.socket) -> SpawnedJail:
        """Have a jail forked. Raises SandboxError when the zygote is no more, or this process has no room for two more
        descriptors."""
        if not self.alive:
            raise SandboxError("the process that forks interpreters has ended")
        loop = asyncio.get_running_loop()
        spawning: asyncio.Future[tuple[int, list[int]]] = loop.create_future()
        self._spawning[order.number] = spawning
        self._ended[order.number] = ended = loop.create_future()
        try:
            socket.send_fds(self._control, [json.dumps(asdict(order)).encode()], [channel.fileno()])
            pid, handles = await spawning
        except OSError as error:
            raise SandboxError(f"the process that forks interpreters does not answer: {error}") from None
        if len(handles) < 2:
            for handle in handles:
                os.close(handle)
            raise SandboxError("the interpreter cannot be held: too many files are open in this process")
        return SpawnedJail(pid, handles[0], handles[1], ended)

    def next_number(self) -> int:
        """Return a number that no jail of this zygote has had."""
        self._next += 1
        return self._next

    def _on_message(self) -> None:
        try:
            data, handles, _, _ = socket.recv_fds(self._control, _MAX_MESSAGE_BYTES, 2)
        except BlockingIOError:
            return
        except OSError:
            data, handles = b"", []
        if not data:
            self._gone()
            return
        message = json.loads(data)
        if "spawned" in message:
            spawning = self._spawning.pop(message["spawned"])
            if spawning.done():
                # The task that wanted it was cancelled, and closed its socket: it ends.
                for handle in handles:
                    os.close(handle)
            else:
                spawning.set_result((message["pid"], handles))
        else:
            ended = self._ended.pop(message["exit"])
            if not ended.done():
                ended.set_result(message["code"])

    def _gone(self) -> None:
        """Tell everybody who waits that the zygote has ended, and all its children with it."""
        self.alive = False
        asyncio.get_running_loop().remove_reader(self._control)
        lost = SandboxError("the process that forks interpreters has ended")
        for spawning in self._spawning.values():
            if not spawning.done():
                spawning.set_exception(lost)
        for ended in self._ended.values():
            if not ended.done():
                ended.set_result(-signal.SIGKILL)
        self._spawning.clear()
        self._ended.clear()

    async def close(self) -> None:
        """End the zygote, and with it all jails."""
        if self.alive:
            self._gone()
        self._control.close()
        try:
            async with asyncio.timeout(5):
                await asyncio.to_thread(self._process.wait)
        except TimeoutError:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """Pid of the zygote."""
        return self._process.pid


def _spawn(command: Sequence[str], descriptor: int, uid: int | None) -> subprocess.Popen[bytes]:
    other: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    return subprocess.Popen(
        command,
        env=_ENVIRONMENT,
        cwd="/",
        stdin=subprocess.DEVNULL,
        pass_fds=[descriptor],
        start_new_session=True,
        **other,
    )


def _cloudpickle() -> str:
    found = importlib.util.find_spec("cloudpickle")
    if found is None or found.origin is None:
        raise SandboxError("cloudpickle is not installed: pip install 'cadre-agents[sandbox]'")
    return str(Path(found.origin).parents[1])
