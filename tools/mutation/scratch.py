"""A copy of the tree in which a mutation is planted and tests are run; the checkout itself is never touched."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mutation import child
from mutation.selection import Layout
from mutation.sites import Mutation

NOT_COPIED = shutil.ignore_patterns(".*", "build", "dist", "node_modules", "*.egg-info")
OUT_OF_TIME = {-signal.SIGXCPU, -signal.SIGKILL}
PYTEST = (
    *("-q", "--no-header", "--tb=no", "--timeout=60", "--hypothesis-seed=0", "-p", "no:cacheprovider"),
    "-Wignore::pytest.PytestAssertRewriteWarning",  # of plugins that are loaded before pytest could rewrite them
)


@dataclass(frozen=True)
class Ran:
    """The outcome of a run of tests."""

    failed: list[str]
    """Ids of the tests that failed; where no test could be named, what is known instead."""
    seconds: dict[str, float]
    """Processor time of each test, by its id."""
    timed_out: bool = False
    loaded: Sequence[str] = ()
    """Installed modules that the tests have loaded."""
    functions: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The functions that each test file has run of the watched files, as `file:qualified name`."""


class Scratch:
    """One copy of a project. It is used by one mutation at a time."""

    def __init__(self, layout: Layout, folder: Path, *, like: Scratch | None = None) -> None:
        """Copies the project, or `like`, which has its bytecode compiled already."""
        self._layout, self._root, self._notes = layout, folder / "tree", folder / "notes.json"
        self._child: subprocess.Popen[str] | None = None
        shutil.copytree(like._root if like else layout.root, self._root, symlinks=True, ignore=NOT_COPIED)

    def start(self, preload: Sequence[str] = ()) -> None:
        """Starts the process that runs tests, with these modules loaded."""
        path = [str(self._root / folder) for folder in (*self._layout.sources, self._layout.tests)]
        self.stop()
        self._child = subprocess.Popen(
            [sys.executable, "-P", child.__file__, *preload],
            cwd=self._root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTEST_ADDOPTS": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def stop(self) -> None:
        """Ends that process. A run must not be under way."""
        if self._child is not None:
            self._child.communicate()
            self._child = None

    @contextmanager
    def planted(self, mutation: Mutation) -> Iterator[None]:
        """Has the mutation in the copy, and the original after that."""
        file = self._copy_of(mutation.file)
        original, stat = file.read_bytes(), file.stat()
        file.write_text(mutation.source)
        # Bytecode is found out of date by size and second: this one never looks like the original's.
        os.utime(file, (stat.st_atime, stat.st_mtime + 60))
        try:
            yield
        finally:
            file.write_bytes(original)
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def test(
        self,
        files: Sequence[str],
        *,
        seconds: float,
        left_out: Collection[str] = (),
        options: Sequence[str] = ("-x",),
        compile: bool = False,
        watched: Collection[Path] = (),
    ) -> Ran:
        """Runs these test files for so many seconds of processor time; `compile` keeps their bytecode. Of the files
        `watched` it is noted which functions run, which takes as long again."""
        self._notes.unlink(missing_ok=True)
        request = {
            "files": list(files),
            "options": [*PYTEST, *options],
            "left_out": sorted(left_out),
            "notes": str(self._notes),
            "watched": [str(self._copy_of(file)) for file in watched],
        }
        status = self._run(request, seconds, compile=compile)
        if status in OUT_OF_TIME:
            return Ran(["out of time"], {}, timed_out=True)
        if not self._notes.exists():
            if status < 0:
                return Ran([f"signal {-status}"], {})
            raise RuntimeError(f"pytest itself failed, with status {status}")
        notes = json.loads(self._notes.read_text())
        failed = notes["failed"] or ([f"pytest ended with status {status}"] if status else [])
        functions = {file: {self._named(name) for name in names} for file, names in notes["functions"].items()}
        return Ran(failed, notes["seconds"], loaded=notes["loaded"], functions=functions)

    def simulate(self, seeds: int, *, seconds: float) -> Ran:
        """Plays so many seeds of the simulation."""
        status = self._run({"arguments": ["simulation.main", f"--seeds={seeds}", "--jobs=1"]}, seconds)
        timed_out = status in OUT_OF_TIME
        return Ran([f"simulation of {seeds} seeds"] if status else [], {}, timed_out)

    def _copy_of(self, file: Path) -> Path:
        return self._root / file.relative_to(self._layout.root)

    def _named(self, function: str) -> str:
        """A function of the copy by the name that it has in the checkout."""
        return str(self._layout.root / Path(function).relative_to(self._root))

    def _run(self, request: Mapping[str, object], seconds: float, *, compile: bool = False) -> int:
        """The exit status, or minus the signal that ended it."""
        assert self._child is not None
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({**request, "seconds": math.ceil(seconds), "compile": compile}) + "\n")
        self._child.stdin.flush()
        return int(self._child.stdout.readline())
