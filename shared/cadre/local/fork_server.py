"""Start services as forks of one process that has imported what they share.

A service that starts on its own takes a second of CPU for its imports and keeps some 50 MB of them. The fork server
imports them once, while it has no thread, event loop or connection. Its forks share that memory until they write to it,
and are ready in a tenth of the time. Each fork is a process like any other, with its own group, environment, output and
restarts. It outlives the fork server; the kernel kills it once the supervisor is gone. Linux only.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import gc
import itertools
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import msgspec

from cadre.adapters import die_with_parent
from cadre.settings import replace_environment

_MOST_DESCRIPTORS, _MOST_BYTES = 64, 1 << 20
_ARGUMENTS_START, _ARGUMENTS_END = 45, 46
"""Fields of /proc/self/stat behind the process' name: the addresses between which its command line stands."""

_ROOM_FOR_TITLE = 4096
"""Bytes of the command line of the fork server, which a fork overwrites with its own."""

_MODULES = {
    "cadre_agent": (
        "cadre_agent.main",
        "cadre.service.agent",
        "cadre.kinds.code.kind",
        "cadre.kinds.tool_calling.kind",
    ),
    "cadre_gateway": ("cadre_gateway.main", "cadre_gateway.wiring"),
    "cadre_sandbox": ("cadre_sandbox.main", "cadre_sandbox.host"),
    "cadre_scripted_model": ("cadre_scripted_model.main",),
    "cadre_tools": ("cadre_tools.main", "cadre_tools.host"),
}
"""The modules that each service imports before it is ready. The memory service is not here: numpy starts threads."""

_MODULES_OF_ALL = (
    "cadre.cli.main",
    "anyio._backends._asyncio",
    "h2.connection",
    "httpcore2",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.auto",
    "uvloop",
)
_EXAMPLE = {
    "apiVersion": "cadre.dev/v1",
    "kind": "Agent",
    "metadata": {"name": "example"},
    "spec": {"description": "Is read once, so that the structs of agent files are."},
}


class ForkRequest(msgspec.Struct):
    """A request to run `python -m module arguments`.

    Open files come with it: the output, the read end of the supervisor's pipe, and one for each of the `descriptors`.
    """

    number: int
    module: str
    arguments: list[bytes]
    """As the system has them: names of files need not be text."""
    environment: dict[bytes, bytes]
    descriptors: list[int]


class ForkStarted(msgspec.Struct, tag=True):
    """The answer to the request of that number; the fork's pidfd comes with it."""

    number: int
    pid: int


class ForkEnded(msgspec.Struct, tag=True):
    """The end of a fork. `code` is its exit code, or minus the number of the signal that killed it."""

    pid: int
    code: int


# --- the supervisor's side


@dataclass
class ForkedProcess:
    """A fork, with the part of `asyncio.subprocess.Process` that the supervisor uses."""

    pid: int
    pidfd: int
    life: int
    """The write end of a pipe that only the supervisor holds: the kernel kills the fork when it is closed."""
    returncode: int | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> int:
        """Return the exit code once the process has ended: that of SIGKILL if the fork server ended before it did."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM. Raises ProcessLookupError if the process has ended."""
        if self.returncode is not None:
            raise ProcessLookupError(self.pid)
        signal.pidfd_send_signal(self.pidfd, signal.SIGTERM)

    def note_end(self, code: int) -> None:
        """Note the exit code of the process, which has ended."""
        self.returncode = code
        os.close(self.pidfd)
        os.close(self.life)
        self._ended.set()

    def watch(self) -> None:
        """Note the end when it comes, without the fork server, which has ended."""
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self.pidfd)
            self.note_end(-signal.SIGKILL)

        loop.add_reader(self.pidfd, ended)


class ForkServer:
    """The fork server as its supervisor uses it. It starts at the first request, and again after it has died."""

    def __init__(self, services: Sequence[str], environment: dict[str, str]) -> None:
        """`services` are the modules that will be asked for. `environment` holds no secrets, since every fork can read
        it; a request brings the environment of its fork."""
        self._services = services
        self._environment = environment
        self._socket: socket.socket | None = None
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[tuple[int, int]]] = {}
        self._forks: dict[int, ForkedProcess] = {}
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Return the fork server's process id; None before the first request."""
        return self._process.pid if self._process is not None else None

    async def fork(
        self,
        module: str,
        arguments: Sequence[str],
        environment: dict[str, str],
        output: int,
        descriptors: Sequence[int] = (),
    ) -> ForkedProcess:
        """Run `python -m module arguments` in a fork with stdout and stderr at `output`; it inherits the descriptors
        under their own numbers. Raises OSError if the fork server cannot be started or dies."""
        words = [os.fsencode(word) for word in arguments]
        variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        # In turn: the socket holds a few requests, and the server reads none before it has imported its modules.
        async with self._turn:
            try:
                return await self._ask(module, words, variables, output, descriptors)
            except ConnectionError:  # it has died, perhaps by what another service did to it
                return await self._ask(module, words, variables, output, descriptors)

    async def _ask(
        self,
        module: str,
        words: list[bytes],
        variables: dict[bytes, bytes],
        output: int,
        descriptors: Sequence[int],
    ) -> ForkedProcess:
        """Have the fork server make a fork. Raises ConnectionError if the fork server has died or dies meanwhile."""
        request = ForkRequest(next(self._numbers), module, words, variables, list(descriptors))
        control = self._socket or await self.begin()
        its_life, life = os.pipe()
        answer = self._asked[request.number] = asyncio.get_running_loop().create_future()
        try:
            socket.send_fds(control, [msgspec.msgpack.encode(request)], [output, its_life, *descriptors])
            pid, pidfd = await answer
        except BaseException as error:
            os.close(life)  # which kills the fork if there is one
            if isinstance(error, ConnectionError) and self._socket is control:
                self._lose(control)
            raise
        finally:
            del self._asked[request.number]
            os.close(its_life)
        self._forks[pid] = ForkedProcess(pid, pidfd, life)
        return self._forks[pid]

    async def begin(self) -> socket.socket:
        """Start the fork server; it imports its modules while others go on. Raises OSError."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with its:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", str(die_with_parent.__file__), str(os.getpid())),
                *(sys.executable, "-m", __name__, str(its.fileno()), ",".join(self._services)),
                "-" * _ROOM_FOR_TITLE,
                env=self._environment,
                pass_fds=(its.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._hear)
        return ours

    async def stop(self) -> None:
        """End the fork server; its forks go on."""
        if self._socket is not None:
            self._lose(self._socket)
        if self._process is not None:
            await self._process.wait()

    def _lose(self, control: socket.socket) -> None:
        """Go on without the fork server, whose socket this is: watch its forks, fail its requests."""
        asyncio.get_running_loop().remove_reader(control)
        control.close()
        self._socket = None
        for fork in self._forks.values():
            fork.watch()
        self._forks = {}
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the fork server has ended"))

    def _hear(self) -> None:
        assert self._socket is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, _MOST_BYTES, 1)
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._lose(self._socket)
            return
        news = msgspec.msgpack.decode(data, type=ForkStarted | ForkEnded)
        if isinstance(news, ForkStarted):
            answer = self._asked.get(news.number)
            if answer is None or answer.done():  # the request was cancelled
                os.close(descriptors[0])
            else:
                answer.set_result((news.pid, descriptors[0]))
        elif news.pid in self._forks:
            self._forks.pop(news.pid).note_end(news.code)


# --- the fork server


def main() -> NoReturn:
    """Import what the services share, then fork at each request until the supervisor is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    services = sys.argv[2].split(",")
    _set_command_line([b"python", b"-m", b"cadre.local.fork_server"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_for(services)
    gc.collect()
    gc.freeze()  # the collector writes to each object that it looks at, and so would copy its page into every fork
    request = _serve(control)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [sys.argv[0], *map(os.fsdecode, request.arguments)]
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)
    sys.exit(0)


def _import_for(services: Sequence[str]) -> None:
    """Import the modules of these services, and make once what each of them makes before it is ready."""
    from cadre.adapters.http_options import http_options
    from cadre.adapters.models.openai_client import import_openai
    from cadre.adapters.models.profiles import profile_of
    from cadre.delivery import codec
    from cadre.prompting.prompt_file import shipped_names
    from cadre.prompting.prompts import Prompts
    from cadre.spec.agent_file import agent_of
    from cadre.spec.model import ModelSpec

    modules = [*_MODULES_OF_ALL, *(module for service in services for module in _MODULES.get(service, ()))]
    for module in modules:
        with contextlib.suppress(ModuleNotFoundError):  # the service itself says which package it lacks
            import_module(module)
    if "cadre_agent" not in services:
        return
    import_openai()
    codec.close()
    agent_of(_EXAMPLE, Path())
    for name in shipped_names():
        Prompts.load(name)
    profile_of(ModelSpec(), "", "")
    http_options("http://127.0.0.1", follows=True)


def _serve(control: socket.socket) -> ForkRequest:
    """Serve requests forever; return in each fork, with its request."""
    forks: dict[int, int] = {}
    ready = select.poll()
    ready.register(control, select.POLLIN)
    while True:
        for descriptor, _ in ready.poll():
            if descriptor != control.fileno():
                pid = forks.pop(descriptor)
                ready.unregister(descriptor)
                os.close(descriptor)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                control.send(msgspec.msgpack.encode(ForkEnded(pid, code)))
                continue
            data, descriptors, _, _ = socket.recv_fds(control, _MOST_BYTES, _MOST_DESCRIPTORS)
            if not data:
                os._exit(0)
            request = msgspec.msgpack.decode(data, type=ForkRequest)
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                control.close()
                for pidfd in forks:
                    os.close(pidfd)
                _become(request, descriptors)
                return request
            os.setpgid(pid, pid)  # here too: the supervisor may kill the group at once
            for own in descriptors:
                os.close(own)
            pidfd = os.pidfd_open(pid)
            forks[pidfd] = pid
            ready.register(pidfd, select.POLLIN)
            socket.send_fds(control, [msgspec.msgpack.encode(ForkStarted(request.number, pid))], [pidfd])


def _become(request: ForkRequest, descriptors: list[int]) -> None:
    """Give this fork the open files, the environment and the command line that `python -m` would have."""
    # Above all numbers that are wanted, so that none is overwritten before it has been copied.
    above = max([2, *request.descriptors]) + 1
    output, life, *others = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, above) for one in descriptors]
    for one in descriptors:
        os.close(one)
    _die_with(life)
    for one, number in zip([output, output, *others], [1, 2, *request.descriptors], strict=True):
        os.dup2(one, number)
    for one in (output, *others):
        os.close(one)
    replace_environment({os.fsdecode(name): os.fsdecode(value) for name, value in request.environment.items()})
    _set_command_line([b"python", b"-m", request.module.encode(), *request.arguments])


def _die_with(life: int) -> None:
    """Have the kernel send SIGKILL to this process when the other end of the pipe is closed."""
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    if select.select([life], [], [], 0)[0]:
        os._exit(1)  # closed before the kernel knew


def _set_command_line(words: Sequence[bytes]) -> None:
    """Show these words as the command line of this process, as `ps` prints it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    text = b"\0".join(words)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()
