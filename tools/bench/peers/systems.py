"""Cadre and its peers, each as processes that play so many delegations or runs when they are asked to."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx2
import msgspec

from bench.delegation import Operation, flood, timed, working_pair
from bench.peers.run import END, TASK, script
from bench.processes import ROOT, cpu_seconds, descendants
from harness.nats_server import free_port
from harness.patience import until
from harness.postgres_server import MISSING, PostgresServer, postgres_programs
from harness.stack import Stack

BUILD = ROOT / "build" / "peers"
"""The peers' environments, each a folder, which `make bench-peers` makes."""

_SERVER = "node_modules/@restatedev/restate-server-linux-*/bin/restate-server"


class Missing(Exception):
    """A peer cannot be had here; the text says what is missing."""


class Played(NamedTuple):
    """The seconds that each operation took, and all of them together."""

    seconds: list[float]
    took: float


class System(NamedTuple):
    """Something that plays `(count, in_flight)`; `pids` are all processes that work for it now."""

    name: str
    play: Callable[[int, int], Awaitable[Played]]
    pids: Callable[[], list[int]]

    def cpu(self) -> dict[int, float]:
        """Return the seconds of CPU so far of each of its processes."""
        found = {}
        for pid in self.pids():
            with suppress(FileNotFoundError, ProcessLookupError):  # a session of a database that has ended meanwhile
                found[pid] = cpu_seconds(pid)
        return found


def spent(before: dict[int, float], after: dict[int, float]) -> float:
    """Return the seconds of CPU between two answers of `System.cpu`."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


async def _play(operation: Operation, count: int, in_flight: int) -> Played:
    began = time.perf_counter()
    if in_flight == 1:
        seconds = [await timed(operation) for _ in range(count)]
    else:
        _, seconds = await flood(operation, count, in_flight)
    return Played(seconds, time.perf_counter() - began)


@asynccontextmanager
async def cadre_delegations() -> AsyncIterator[list[System]]:
    """A delegation, and the messages that it stores with no agent in them.

    The manager's process is this one, so the bench's own CPU counts for both.
    """
    async with working_pair() as pair:

        def pids() -> list[int]:
            return [pid for group in pair.pids.values() for pid in group]

        yield [
            System("Cadre", partial(_play, pair.delegate), pids),
            System("its messages alone", partial(_play, pair.relay), pids),
        ]


@asynccontextmanager
async def restate() -> AsyncIterator[System]:
    """Raises Missing."""
    folder = _environment("restate")
    server = next(iter(folder.glob(_SERVER)), None)
    if server is None:
        raise Missing(f"no restate-server in {folder}: npm must be able to install it")
    async with AsyncExitStack() as stack:
        data = stack.enter_context(TemporaryDirectory(prefix="cadre-bench-"))
        fabric, ingress, admin, *ports = (free_port() for _ in range(5))
        environment = {
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{fabric}",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        }
        argv = [str(server), "--no-logo", "--base-dir", data, "--node-name", "bench"]
        processes = [await stack.enter_async_context(_running(argv, environment))]
        for service, port in zip(("manager", "worker"), ports, strict=True):
            serving = _command("restate", "serve", service, str(port))
            processes.append(await stack.enter_async_context(_running(serving)))
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
            for port in ports:
                await until(partial(_registered, http, admin, port))
        client = await stack.enter_async_context(_program("restate", "drive", str(ingress)))
        yield System("Restate", client.play, lambda: [process.pid for process in processes])


async def _registered(http: httpx2.AsyncClient, admin: int, port: int) -> bool:
    try:
        answer = await http.post(
            f"http://127.0.0.1:{admin}/deployments", json={"uri": f"http://127.0.0.1:{port}", "force": True}
        )
    except httpx2.HTTPError:
        return False  # not up yet
    return answer.is_success


@asynccontextmanager
async def dbos() -> AsyncIterator[System]:
    """Raises Missing."""
    _environment("dbos")
    programs = postgres_programs()
    if programs is None:
        raise Missing(MISSING)
    with PostgresServer(programs, fsync=True) as postgres:
        async with _program("dbos", postgres.url) as program:

            def pids() -> list[int]:
                return [program.pid, postgres.pid, *descendants(postgres.pid)]

            yield System("DBOS", program.play, pids)


@asynccontextmanager
async def framework(name: str, title: str, url: str, streams: bool) -> AsyncIterator[System]:
    """A run in one process, by `NAME_program.py`. Raises Missing."""
    async with _program(name, url, "scripted", *(["stream"] if streams else [])) as program:
        yield System(title, program.play, lambda: [program.pid])


@asynccontextmanager
async def cadre_runs() -> AsyncIterator[tuple[str, dict[bool, System]]]:
    """The scripted model's URL, and Cadre's runs, streamed and not: gateway, agents, tools and NATS, each a process."""
    with TemporaryDirectory(prefix="cadre-bench-") as name, Stack(Path(name)) as stack:
        folder = Path(name)
        rules = folder / "script.yaml"
        rules.write_bytes(msgspec.yaml.encode(script()))
        stack.model(rules)
        for streams, agent in _READERS.items():
            file = folder / f"{agent}.yaml"
            file.write_bytes(msgspec.yaml.encode(_reader(agent, streams)))
            stack.agent(file, start=False)
        stack.tools(ROOT / "tools" / "bench" / "lookup.py", start=False)
        gateway = stack.open_gateway()
        gateway.wait_offered(len(_READERS))

        def pids() -> list[int]:
            own = [one.pid for name, one in stack.services.items() if name != "model"]
            return [stack.nats.pid, *own, *(child for pid in own for child in descendants(pid))]

        async with httpx2.AsyncClient(base_url=gateway.service.url, trust_env=False, timeout=300) as http:
            runs = {True: partial(_streamed_run, http), False: partial(_whole_run, http)}
            found = {streams: System("Cadre", partial(_play, run), pids) for streams, run in runs.items()}
            yield stack.environment["CADRE_MODEL_URL"], found


_READERS = {False: "reader", True: "streaming-reader"}


def _reader(name: str, streams: bool) -> dict[str, Any]:
    spec = {"description": "Reads.", "instructions": "Read.", "tools": ["read_page"], "model": {"stream": streams}}
    return {"apiVersion": "cadre.dev/v1", "kind": "Agent", "metadata": {"name": name}, "spec": spec}


async def _whole_run(http: httpx2.AsyncClient) -> None:
    wanted = {"agent": _READERS[False], "task": TASK}
    answer = await http.post("/v1/runs", json=wanted, headers={"Prefer": "wait=300"})
    if answer.status_code != httpx2.codes.OK or answer.json()["output"] != END:
        raise RuntimeError(f"the run ended with {answer.text}")


async def _streamed_run(http: httpx2.AsyncClient) -> None:
    wanted = {"agent": _READERS[True], "task": TASK, "stream": True}
    pieces, last = 0, ""
    async with http.stream("POST", "/v1/runs", json=wanted) as answer:
        async for line in answer.aiter_lines():
            pieces += line == "event: delta"
            last = line or last
    if not pieces or '"state":"success"' not in last:
        raise RuntimeError(f"the run ended with {last}, behind {pieces} pieces")


def _environment(name: str) -> Path:
    folder = BUILD / name
    if not (folder / ".ready").exists():
        raise Missing(f"{folder} is not whole: `make bench-peers` makes it, from {name}.txt")
    return folder


def _command(name: str, *options: str) -> list[str]:
    return [str(_environment(name) / "bin" / "python"), "-m", f"bench.peers.{name}_program", *options]


class Program:
    """A peer's program behind `bench.peers.playing`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    async def play(self, count: int, in_flight: int) -> Played:
        """Raises RuntimeError when the program ends instead."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"count": count, "in_flight": in_flight}).encode() + b"\n")
        if not (line := await self.line()):
            raise RuntimeError(f"the program ended: {self.said()}")
        found = json.loads(line)
        return Played(found["seconds"], found["took"])

    async def line(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    def said(self) -> str:
        """Return the end of what it wrote to standard error."""
        return self._log.read_text()[-2000:]


@asynccontextmanager
async def _running(argv: list[str], environment: Mapping[str, str] | None = None) -> AsyncIterator[Program]:
    """A process that is killed at the end."""
    with TemporaryDirectory(prefix="cadre-bench-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env={**os.environ, "PYTHONPATH": str(ROOT / "tools"), **(environment or {})},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=2**24,
            )
        try:
            yield Program(process, log)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@asynccontextmanager
async def _program(name: str, *options: str) -> AsyncIterator[Program]:
    """Raises Missing when the program does not get ready."""
    async with _running(_command(name, *options)) as program:
        if not await program.line():
            raise Missing(f"its program does not start: {program.said()}")
        yield program
