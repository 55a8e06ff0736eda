"""Services and commands that are forked from a process that has imported their code: imports are most of what a start
costs.

Each is its own process, with its own environment, streams and signals, as `python -m MODULE` would be.
"""

import atexit
import gc
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import NamedTuple

import cadre.cli

FORKED = {
    "cadre_agent",
    "cadre_gateway",
    "cadre_memory",
    "cadre_scripted_model",
    "cadre_tools",
    "cadre_tracer",
}
_IMPORTED = [
    "cadre_agent.main",
    "cadre_gateway.main",
    "cadre_gateway.wiring",
    "cadre_gateway.index.database.sqlite",
    "cadre_gateway.doors.a2a.door",
    "cadre_gateway.doors.agui.door",
    "cadre_gateway.doors.mcp.door",
    "cadre_gateway.doors.openai.door",
    "cadre_memory.main",
    "cadre_scripted_model.main",
    "cadre_tools.main",
    "cadre_tracer.main",
    "cadre.adapters.models.openai_model",
    *(module.name for module in pkgutil.walk_packages(cadre.cli.__path__, "cadre.cli.")),
    "cadre.kinds.code.kind",
    "cadre.kinds.tool_calling.kind",
    "cadre.service.agent",
    "cadre.tools.signature",
    "anyio._backends._asyncio",
    "httpcore2",
    "openai",
    "pydantic.v1",  # by FastAPI, with the first route
    "uvicorn.protocols.websockets.auto",
    "uvloop",
]
_AT_START = (
    *("PYTHONPATH", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8"),
    *("LD_PRELOAD", "MALLOC_ARENA_MAX", "LC_ALL", "LANG"),
)
"""Variables that are read when an interpreter starts, and by no one afterwards."""


class Forked:
    """A process with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if (status := self.returncode) is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[bytes]


def start(arguments: Sequence[str], environment: Mapping[str, str], log: Path, group: int | None = None) -> Process:
    """Starts `python -m arguments…`, or a script, in the folder of its log, to which its output is added.

    Tests have it forked where that is the same; what is measured is a process as users start it.
    """
    folder = log.absolute().parent  # what it writes by a relative path lands there, and not in the checkout
    if arguments[0] in FORKED and _may_fork(environment):
        log.touch()
        return _fork(arguments, environment, folder, Streams(os.devnull, str(log), str(log)), group)
    command = list(arguments) if arguments[0].endswith(".py") else ["-m", *arguments]
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
            process_group=group,
        )


def run(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, said: str, within: float
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m arguments…` in the folder to its end, as `subprocess.run` does: `said` is its standard input.

    Raises subprocess.TimeoutExpired when that takes longer than `within` seconds.
    """
    argv = [sys.executable, "-m", *arguments]
    if not _may_fork(environment):
        return subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            input=said,
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch, name) for name in ("input", "output", "errors")]
        for file, text in zip(files, (said, "", ""), strict=True):
            file.write_text(text)
        process = _fork(arguments, environment, folder, Streams(*map(str, files)))
        try:
            status = process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(argv, status, *(file.read_text() for file in files[1:]))


class Streams(NamedTuple):
    """Files that a process has as its standard streams."""

    input: str
    output: str
    errors: str


def _may_fork(environment: Mapping[str, str]) -> bool:
    is_same = all(environment.get(name) == os.environ.get(name) for name in _AT_START)
    return "PYTEST_VERSION" in os.environ and is_same


def _fork(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    streams: Streams,
    group: int | None = None,
) -> Forked:
    process = _server().Process(
        target=_run, args=(list(arguments), dict(environment), str(folder), streams, group), daemon=True
    )
    process.start()
    return Forked(process)


@cache
def _server() -> ForkServerContext:
    # The server passes over what it cannot import.
    assert [name for name in _IMPORTED if find_spec(name) is None] == []
    context = get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


def _run(arguments: list[str], environment: dict[str, str], folder: str, streams: Streams, group: int | None) -> None:
    """Run the process: it becomes what `python -m` makes, and ends as that ends."""
    # Its collector would go through all that the other one has imported, and copy the memory by doing so.
    gc.freeze()
    if group is not None:
        os.setpgid(0, group)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    for number, file in enumerate(streams):
        opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv = list(arguments)
    sys.modules.pop(arguments[0], None)  # as it is not imported before it is run
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # which a child of multiprocessing leaves out
