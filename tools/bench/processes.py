"""The cost of a process as the kernel counts it: CPU, resident memory; and a member process that goes when asked to."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harness.nats_server import nats_binary

ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join([str(ROOT / "tools"), str(ROOT / "tests")])
"""Of processes that are modules of the bench."""

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
_START_WITHIN = 30.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK


def rss_mb(pid: int) -> float:
    """Resident memory, in millions of bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_MB


def pss_mb(pid: int) -> float:
    """Memory of a process, in millions of bytes; what it shares with others counts for it by its share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def descendants(pid: int) -> list[int]:
    """The processes that this one has started, and those that they have."""
    children = [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]
    return [*children, *(one for child in children for one in descendants(child))]


def cpu_of_command(*command: str, **environment: str) -> float:
    """User and system seconds of a command from its start to its end; what it prints is dropped."""
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, usage = os.wait4(process.pid, 0)
    # Reaped above: without a return code the object would go looking for the process again.
    process.returncode = 0
    return usage.ru_utime + usage.ru_stime


@asynccontextmanager
async def running_module(module: str, *options: str, **environment: str) -> AsyncIterator[None]:
    """`python -m module`, once it has said `ready`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *options),
        env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{module} did not start")
        yield
    finally:
        process.kill()
        await process.wait()


class Member:
    """`python -m bench.worker`: it lives as long as its standard input is open, and no longer than this process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, nats_url: str, shards: int, *options: str) -> Member:
        """Returns when it serves. Raises RuntimeError when it ends instead."""
        environment = {**os.environ, "CADRE_NATS_URL": nats_url, "CADRE_SHARDS": str(shards)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.worker", *options),
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        member = cls(process)
        await member.says("ready", _START_WITHIN)
        return member

    @property
    def pid(self) -> int:
        return self._process.pid

    async def says(self, word: str, within: float) -> None:
        """Waits for a line. Raises RuntimeError when another one comes, or none."""
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), within)).decode().strip()
        if line != word:
            raise RuntimeError(f"the member process said {line!r}, not {word!r}")

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        await self._process.wait()


def machine() -> dict[str, Any]:
    """Return what figures were measured on: its processor, load, versions, and when."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    version = subprocess.run([nats_binary(), "--version"], capture_output=True, text=True, check=True)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nats_server": version.stdout.strip(),
        "at": time.time(),
    }
