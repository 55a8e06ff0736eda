"""A process group that dies with the test that made it, however the test ends."""

import subprocess
import sys

_WATCH = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(0, signal.SIGKILL)"
"""The pipe ends when the test closes it, and when the test is gone. SIGKILL reaches stopped processes too."""


class Guard:
    """Start processes with `process_group=guard.group`: none of them outlives `close`, or this process."""

    def __init__(self) -> None:
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCH], stdin=subprocess.PIPE, process_group=0
        )
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def group(self) -> int:
        return self._watcher.pid

    def adopt(self, process: subprocess.Popen[bytes]) -> None:
        """Has `close` wait for a process of the group: one that a failed test leaves would fail the next test too."""
        self._children.append(process)

    def close(self) -> None:
        """Kills anything that is left of the group."""
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.wait()
        for process in self._children:
            process.wait()
