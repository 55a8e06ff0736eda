"""The cost of kept runs: a gateway that lists them, the NATS server that stores them, the runs that go on.

CADRE_INDEX_URL has the index in that PostgreSQL.
"""

import asyncio
import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
import msgspec
import uvloop

from bench.processes import Member, cpu_seconds, rss_mb
from bench.scaling.table import Row, keep, say, show
from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.journal import NatsJournal
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.codec import decode, encode
from cadre.errors import OutcomeUnknown
from cadre.journal.entry import BackPointers, Entry
from cadre.settings import Settings
from harness.nats_server import NatsServer
from integration.gateway_world import GatewayProcess
from unit.loop.build import ANSWER, SimulatedRun, call, result

SIZES = (1_000, 10_000, 100_000)
_TEMPLATE = "0123456789abcdef0123456789abcdef"
_RARE_EVERY = 1_000
"""One run of so many is of the agent `rare`."""
_IN_FLIGHT = 256
_ASKED = 20
_POSTED = 200
_CAUGHT_UP_SECONDS = 3_600.0
_WORKER = "worker"

QUESTIONS: dict[str, dict[str, Any]] = {
    "a page": {"limit": 50},
    "a filter that finds few": {"agent": "rare", "limit": 50},
    "words": {"text": "rare", "limit": 50},
}

ROWS = {
    "memory": Row("gateway memory", "MB", 0),
    "index": Row("index", "MB", 1),
    "entry": Row("CPU of reading an entry", "µs", 0),
    **{name: Row(f"{name}, CPU", "ms", 1) for name in QUESTIONS},
    "post": Row("POST of a run, p50", "ms", 1),
    "run_cpu": Row("CPU of the agent for a run of one step", "ms", 2),
    "stop": Row("gateway stop", "s", 1),
    "start": Row("gateway start with its index", "s", 1),
    "start_cpu": Row("the same, CPU", "s", 1),
    "anew": Row("gateway start without a file, until it is ready", "s", 1),
    "anew_cpu": Row("the same, CPU", "s", 1),
    "nats": Row("NATS memory behind the filling", "MB", 0),
    "nats_restarted": Row("NATS memory after its restart", "MB", 0),
    "nats_read": Row("… when a gateway has read all of it", "MB", 0),
    "nats_start": Row("NATS restart", "s", 1),
    "appends": Row("appends per second while filling, the gateway reading", "", 0),
    "disk": Row("disk per run", "kB", 1),
}


class Kept:
    """A deployment whose runs are kept: its server, its gateway, an agent that works, a writer of journals."""

    def __init__(self, nats: NatsServer, gateway: GatewayProcess, agent: Member, journal: NatsJournal) -> None:
        self.nats, self.gateway, self.agent = nats, gateway, agent
        self._journal = journal
        self._template = template()
        self.runs = 0
        """That the gateway is to list."""

    async def fill(self, runs: range) -> int:
        """Adds these runs, several at once, through the production writer; how many entries they have."""
        numbers = iter(runs)
        async with asyncio.TaskGroup() as group:
            for _ in range(_IN_FLIGHT):
                group.create_task(self._write(numbers))
        self.runs += len(runs)
        return len(runs) * len(self._template)

    async def _write(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            run, before = f"{number:032x}", ""
            pointers, places = BackPointers(), [0]
            while len(places) <= len(self._template):
                entry = msgspec.structs.replace(self._entry(len(places) - 1, number), prev=pointers.packed())
                try:
                    done = await self._journal.append(entry, places[-1], before=before)
                except OutcomeUnknown:  # a stalled disk
                    stored = await self._journal.read(run, run)
                    pointers, places = BackPointers(), [0, *(one.seq for one in stored)]
                    for one in stored:
                        pointers.note(one.seq)
                    before = stored[-1].entry.hash if stored else ""
                else:
                    pointers.note(done.seq)
                    places, before = [*places, done.seq], done.hash

    def _entry(self, place: int, number: int) -> Entry:
        own = self._template[place].replace(_TEMPLATE.encode(), b"%032x" % number)
        if number % _RARE_EVERY == 0:
            own = own.replace(b'"boss"', b'"rare"')
        entry: Entry = decode(own, Entry)
        return entry

    async def until_listed(self, http: httpx2.AsyncClient) -> None:
        async with asyncio.timeout(_CAUGHT_UP_SECONDS):
            while True:
                page = (await http.get("/v1/runs", params={"count": "true", "limit": 1})).json()
                if page["total"] >= self.runs:
                    return
                await asyncio.sleep(0.5)

    async def disk(self) -> int:
        """Bytes of the server's folder on its disk."""
        command = partial(subprocess.run, ["du", "-s", "-B1", self.nats.store], capture_output=True, check=True)
        said = await asyncio.to_thread(command)
        return int(said.stdout.split()[0])


def template() -> list[bytes]:
    """The entries of a run of two steps as JSON, without hashes and back-pointers."""
    sim = SimulatedRun(run=_TEMPLATE)
    sim.at = time.time()
    sim.begin().say(call("add", a=1, b=2))
    sim.arrive(result(sim.id(), 3))
    sim.say(ANSWER)
    return [encode(entry) for entry in sim.journal()]


@asynccontextmanager
async def kept(folder: Path) -> AsyncIterator[Kept]:
    """The deployment in a folder, nothing kept yet."""
    shared = {key: os.environ[key] for key in ("CADRE_INDEX_URL",) if key in os.environ}
    with NatsServer(folder) as nats:
        settings = Settings(nats_url=nats.url)
        nc = await connect(settings, "bench")
        topology = await provision(nc, settings)
        gateway = GatewayProcess(nats.url, folder, settings, CADRE_SHARDS=str(settings.shards), **shared)
        agent = await Member.start(nats.url, settings.shards)
        try:
            yield Kept(nats, gateway, agent, NatsJournal(nc, topology, NatsBlobs(nc, topology)))
        finally:
            await agent.stop()
            await nc.close()
            if gateway.is_alive:
                gateway.kill()


def run(sizes: Sequence[int] = SIZES) -> None:
    """Measures with so many runs, the fewest first, and prints a column for each."""
    found = uvloop.run(measure(sizes))
    show("kept runs", ROWS, [f"{size:,}" for size in sizes], found)


async def measure(sizes: Sequence[int]) -> list[dict[str, float]]:
    """The figures of ROWS for each number of kept runs, from the fewest."""
    found: list[dict[str, float]] = []
    columns = [f"{size:,}" for size in sizes]
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as name:
        async with kept(Path(name)) as here:
            for begin, size in itertools.pairwise((0, *sizes)):
                say(f"kept runs: {size:,}")
                found.append(await _filled(here, range(begin, size)) | await _restarted(here))
                keep("kept runs", columns, found)
    return found


async def _filled(here: Kept, runs: range) -> dict[str, float]:
    """Return what it costs to add these runs and to have them."""
    gateway = here.gateway
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=120) as http:
        before, began = cpu_seconds(gateway.pid), time.perf_counter()
        entries = await here.fill(runs)
        seconds = time.perf_counter() - began
        await here.until_listed(http)
        values: dict[str, float] = {
            "entry": (cpu_seconds(gateway.pid) - before) * 1e6 / entries,
            "appends": entries / seconds,
            "nats": rss_mb(here.nats.pid),
            "disk": await here.disk() / 1e3 / here.runs,
            "index": (await http.get("/v1/index")).json()["bytes"] / 1e6,
            "memory": rss_mb(gateway.pid),
        }
        await _check(http, f"{runs.stop - 1:032x}")
        for name, query in QUESTIONS.items():
            values[name] = median([await _cpu_of(gateway, http, query) for _ in range(3)])
        return values | await _posted(here, http)


async def _check(http: httpx2.AsyncClient, run: str) -> None:
    """Raises RuntimeError unless a run that was written here is one as any other."""
    said = (await http.get(f"/v1/runs/{run}/verify")).json()
    shown = (await http.get(f"/v1/runs/{run}")).json()
    if said["broken"] or said["entries"] != len(template()) or shown["output"] != "42":
        raise RuntimeError(f"run {run} is not as it was meant to be: {said}, {shown}")


async def _posted(here: Kept, http: httpx2.AsyncClient) -> dict[str, float]:
    """Runs that go on next to those that are kept."""
    while not (await http.get("/v1/agents")).json()["agents"]:  # noqa: ASYNC110 - announced to no one else
        await asyncio.sleep(0.1)
    before = cpu_seconds(here.agent.pid)
    seconds = []
    for _ in range(_POSTED):
        began = time.perf_counter()
        (await http.post("/v1/runs", json={"agent": _WORKER, "task": "Say done."})).raise_for_status()
        seconds.append(time.perf_counter() - began)
    here.runs += _POSTED
    await here.until_listed(http)
    return {
        "post": median(seconds) * 1e3,
        "run_cpu": (cpu_seconds(here.agent.pid) - before) * 1e3 / _POSTED,
    }


async def _restarted(here: Kept) -> dict[str, float]:
    gateway, nats = here.gateway, here.nats
    values = {"stop": await _timed(gateway.stop)}
    values["start"] = await _timed(gateway.start)
    values["start_cpu"] = cpu_seconds(gateway.pid)
    gateway.stop()
    nats.stop()
    gateway.index_file.unlink(missing_ok=True)  # a database is not the pod's
    values["nats_start"] = await _timed(nats.start)
    values["nats_restarted"] = rss_mb(nats.pid)
    values["anew"] = await _timed(partial(gateway.start, _CAUGHT_UP_SECONDS))
    values["anew_cpu"] = cpu_seconds(gateway.pid)
    values["nats_read"] = rss_mb(nats.pid)
    return values


async def _cpu_of(gateway: GatewayProcess, http: httpx2.AsyncClient, query: dict[str, Any]) -> float:
    """Milliseconds of CPU for one answer."""
    before = cpu_seconds(gateway.pid)
    for _ in range(_ASKED):
        (await http.get("/v1/runs", params=query)).raise_for_status()
    return (cpu_seconds(gateway.pid) - before) * 1e3 / _ASKED


async def _timed(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await asyncio.to_thread(act)
    return time.perf_counter() - began
