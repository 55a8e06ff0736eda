"""Blocks of code: over the bus and without it, fresh interpreters, code that will not stop, and the same snippets in
smolagents' own interpreter where `make compat` has installed it."""

import json
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.code_echo import POOL, SUBJECT
from bench.delegation import timed
from bench.processes import running_module
from cadre.settings import Settings
from cadre_sandbox.interpreters.contract import BlockLimits, BlockRequest, Failed, Finished
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.interpreters.session import InterpreterSession
from harness.nats_server import NatsServer
from integration.sandbox_bench import Bench
from integration.service_bench import finished

PEER = Path(__file__).parents[2] / "build" / "compat-venv" / "bin" / "python"
NOT_INSTALLED = "not installed"

SMALL = "x = 15 * 7\nprint(x)\nx"
LOOP = "total = 0\nfor i in range(20000):\n    total += i * i\ntotal"
WORDS = (
    "words = ('the quick brown fox jumps over it ' * 1000).split()\ncounts = {}\nfor word in words:\n"
    "    counts[word] = counts.get(word, 0) + 1\nsorted(counts.items())"
)
SNIPPETS = {"small": SMALL, "loop": LOOP, "words": WORDS}

LIMIT = 1.0
C_HANG = "sum(range(10 ** 12))"
PEER_HANG = "sum(range(3 * 10 ** 8))"
"""Ends on its own after some seconds: an interpreter that waits for it is to come back."""
HANGS = {
    "loop": "while True:\n    pass",
    "c": C_HANG,
    "deaf": "def again():\n    while True:\n        try:\n            while True:\n                pass\n"
    "        except BaseException:\n            pass\nagain()",
    "signals": "import signal\nfor number in range(1, 32):\n    try:\n        signal.signal(number, signal.SIG_IGN)\n"
    "    except OSError:\n        pass\nwhile True:\n    pass",
}
BLOCKS = 60


class Size(NamedTuple):
    samples: int
    fresh: int
    peer: int


FULL = Size(samples=300, fresh=40, peer=40)
QUICK = Size(samples=80, fresh=15, peer=10)


async def measure(size: Size) -> dict[str, Any]:
    values = await _over_the_bus(size.samples)
    async with Sandbox(pool=0, most=BlockLimits(seconds=30)) as sandbox:
        values["code_fresh_p50_ms"] = median([await _opened(sandbox) for _ in range(size.fresh)])
        values |= {f"code_late_{name}_s": await _late(sandbox, code) for name, code in HANGS.items()}
        values |= await _snapshots(sandbox)
        values |= await _beside_peer(sandbox, size.peer)
    async with Sandbox(pool=4) as sandbox:
        values["code_pool_p50_ms"] = median([await _acquired(sandbox) for _ in range(size.fresh)])
    return values


# --- over the bus


async def _over_the_bus(samples: int) -> dict[str, Any]:
    """Core requests, blocks that no one runs, and blocks in a warm interpreter, in turns."""
    seconds: list[tuple[float, float, float]] = []
    async with _deployment() as bench:
        first = await bench.ask(bench.block(SMALL))
        run, snapshot = first.run, finished(first).snapshot
        payload = b"x" * 1024

        async def request() -> None:
            await bench.nc.request(SUBJECT, payload, timeout=5)

        for step in range(2, samples + 2):
            warm = bench.block(SMALL, run=run, step=step, snapshot=snapshot)
            nobody = bench.block(SMALL, pool=POOL)
            seconds.append(
                (
                    await timed(request),
                    await timed(lambda call=nobody: bench.ask(call)),  # type: ignore[misc]
                    await timed(lambda call=warm: bench.ask(call)),  # type: ignore[misc]
                )
            )
        request_s, echo_s, warm_s = (median(column) for column in zip(*seconds, strict=True))
    return {
        "code_bus_request_p50_ms": request_s * 1e3,
        "code_bus_alone_p50_ms": echo_s * 1e3,
        "code_bus_warm_p50_ms": warm_s * 1e3,
        "code_bus_warm_beyond_ms": median(row[2] - row[1] for row in seconds) * 1e3,
        "code_bus_warm_request_ratio": warm_s / request_s,
    }


@asynccontextmanager
async def _deployment() -> AsyncIterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as folder, NatsServer(Path(folder)) as nats:
        settings = Settings(nats_url=nats.url)
        async with Bench.open(settings, Path(folder)) as bench:
            await bench.start()
            async with _echo(settings):
                yield bench


@asynccontextmanager
async def _echo(settings: Settings) -> AsyncIterator[None]:
    async with running_module("bench.code_echo", CADRE_NATS_URL=settings.nats_url):
        yield


# --- without it


async def _opened(sandbox: Sandbox) -> float:
    """Milliseconds until a fresh interpreter has run nothing, none being ready."""
    began = time.perf_counter()
    session = await sandbox.open()
    taken = time.perf_counter() - began
    await session.close()
    return taken * 1e3


async def _acquired(sandbox: Sandbox) -> float:
    """Milliseconds until one is there that had been made ready."""
    await sandbox.filled()
    return await _opened(sandbox)


async def _block(session: InterpreterSession, code: str) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    outcome = await session.execute(BlockRequest(code=code))
    taken = time.perf_counter() - began
    assert isinstance(outcome, Finished), outcome
    return taken * 1e3


async def _late(sandbox: Sandbox, code: str) -> float:
    """Seconds beyond the limit until the outcome is there."""
    session = await sandbox.open()
    began = time.perf_counter()
    request = BlockRequest(code=code, limits=BlockLimits(seconds=LIMIT), authorized_imports=["*"])
    outcome = await session.execute(request)
    late = time.perf_counter() - began - LIMIT
    assert isinstance(outcome, Failed), outcome
    await session.close()
    return late


async def _snapshots(sandbox: Sandbox) -> dict[str, Any]:
    """Bytes after the first block and after many that changed the same variable, and printed as much each time."""
    session = await sandbox.open()
    sizes = []
    for n in range(BLOCKS):
        code = f"rows = [{n} + k for k in range(5000)]\nprint(rows)"
        outcome = await session.execute(BlockRequest(code=code))
        assert isinstance(outcome, Finished), outcome
        assert outcome.snapshot is not None
        sizes.append(len(outcome.snapshot))
    await session.close()
    return {
        "code_snapshot_kb": sizes[0] / 1e3,
        "code_snapshot_kb_after": sizes[-1] / 1e3,
        "code_snapshot_growth": sizes[-1] / sizes[0],
    }


# --- next to smolagents


class Peer:
    """smolagents' interpreter in a process with its own environment."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **asked: Any) -> float:
        """Milliseconds of some code, or with `limit` the seconds beyond it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return float(json.loads(self._process.stdout.readline()))


@contextmanager
def running_peer() -> Iterator[Peer | None]:
    """None where it is not installed."""
    if not PEER.exists():
        yield None
        return
    command = [str(PEER), str(Path(__file__).with_name("code_peer.py"))]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            yield Peer(process)
        finally:
            process.kill()


async def _beside_peer(sandbox: Sandbox, times: int) -> dict[str, Any]:
    """The same snippets in turns, both without a bus; ratios above 1: the sandbox is the faster."""
    session = await sandbox.open()
    values: dict[str, Any] = {}
    with running_peer() as peer:
        for name, code in SNIPPETS.items():
            await _block(session, code)
            pairs = [(await _block(session, code), peer.ask(code=code) if peer else None) for _ in range(times)]
            values[f"code_{name}_ms"] = median(own for own, _ in pairs)
            ratios = [theirs / own for own, theirs in pairs if theirs is not None]
            values[f"code_{name}_peer_ratio"] = median(ratios) if ratios else NOT_INSTALLED
        values["code_late_shorter_c_s"] = await _late(sandbox, PEER_HANG)
        late = peer.ask(code=PEER_HANG, limit=LIMIT) if peer else NOT_INSTALLED
        values["code_late_shorter_c_peer_s"] = late
    return values
