"""Runs tests in forks of a process that has the foreign packages loaded already.

It reads one request a line, in JSON, and answers with the status that the fork ended with (negative: its signal).
"""

import importlib
import json
import os
import resource
import runpy
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase

MOST_BYTES = 6 << 30
"""Address space: a bug that makes a list grow without end is not to take the machine along."""

WAITING = 20
"""A run may last so many times the processor time that it may take: other work goes on next to it."""


class Notes:
    """The tests that failed, and the processor time in seconds of each test."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        began = sum(os.times()[:4])
        outcome = yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - began
        return outcome

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class Executed:
    """The functions of the watched files that each test file runs, by `module file:qualified name`."""

    def __init__(self, watched: set[str]) -> None:
        self._watched = watched
        self.functions: dict[str, set[str]] = {}
        self._codes: set[CodeType] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._codes = set()
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            of_file = self.functions.setdefault(item.nodeid.partition("::")[0], set())
            of_file |= {f"{code.co_filename}:{code.co_qualname.replace('.<locals>', '')}" for code in self._codes}

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename in self._watched:
            self._codes.add(frame.f_code)


class Without:
    """Leaves tests out by their ids."""

    def __init__(self, left_out: set[str]) -> None:
        self._left_out = left_out

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._left_out]


def serve() -> None:
    """Arguments are the modules to load beforehand."""
    for name in sys.argv[1:]:
        with suppress(Exception):
            importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            _run(request)
        print(_wait(pid, WAITING * request["seconds"]), flush=True)


def _wait(pid: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        with suppress(ProcessLookupError):
            if ended or time.monotonic() > end:
                os.killpg(pid, signal.SIGKILL)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)


def _run(request: dict[str, Any]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (request["seconds"], request["seconds"] + 1))
    if not request["compile"]:
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    status = 1
    try:
        status = _test(request) if "files" in request else _play(request["arguments"])
    finally:
        os._exit(status)


def _test(request: dict[str, Any]) -> int:
    # That an example fails is enough; to look for a shorter one takes minutes.
    hypothesis.settings.register_profile("mutation", phases=[Phase.explicit, Phase.generate], database=None)
    hypothesis.settings.load_profile("mutation")
    notes, executed, before = Notes(), Executed(set(request["watched"])), set(sys.modules)
    arguments = [*request["options"], *request["files"]]
    status = int(pytest.main(arguments, plugins=[notes, executed, Without(set(request["left_out"]))]))
    loaded = sorted(name for name in set(sys.modules) - before if _is_foreign(name))
    Path(request["notes"]).write_text(
        json.dumps(
            {
                "failed": notes.failed,
                "seconds": notes.seconds,
                "loaded": loaded,
                "functions": {file: sorted(names) for file, names in executed.functions.items()},
            }
        )
    )
    return status


def _is_foreign(name: str) -> bool:
    """Return whether a module was installed and is no plugin of pytest's, which loads those itself."""
    file = getattr(sys.modules[name], "__file__", None) or ""
    return "site-packages" in file and "pytest" not in name and name.partition(".")[0] not in ("anyio", "xdist")


def _play(arguments: list[str]) -> int:
    sys.argv = arguments
    try:
        runpy.run_module(arguments[0], run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    serve()
