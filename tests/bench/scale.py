"""`make bench-scale`: what a gateway costs with so many kept runs.

RUNS="1000 10000" says how many, CADRE_INDEX_URL that the index is in that PostgreSQL."""

import asyncio
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
import httpx2
import uvloop
from nats.aio.client import Client

from bench.processes import cpu_seconds, rss_mb
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.objects.blobs import NatsBlobs
from cadre.adapters.nats.streams.provision import provision
from cadre.delivery.codec import pack_entry
from cadre.protocol.topology import Topology
from harness.nats_server import NatsServer
from integration.gateway_world import GatewayProcess
from unit.loop.build import ANSWER, Course, call, result

SIZES = (1_000, 10_000, 50_000, 100_000)
_TEMPLATE = "0123456789abcdef0123456789abcdef"
_RARE_EVERY = 1_000
"""One run of so many is of the agent `rare`."""
_UNFLUSHED = 2_000
_ASKED = 20
_CAUGHT_UP_SECONDS = 1_800.0

QUESTIONS: dict[str, dict[str, Any]] = {
    "a page": {"limit": 50},
    "a filter that finds few": {"agent": "rare", "limit": 50},
    "words": {"text": "rare", "limit": 50},
}


class Row(NamedTuple):
    """One line of the table, a value for each size."""

    name: str
    unit: str
    digits: int


ROWS = {
    "memory": Row("gateway memory", "MB", 0),
    "index": Row("index", "MB", 1),
    "entry": Row("CPU of reading an entry", "µs", 0),
    **{name: Row(f"{name}, CPU", "ms", 1) for name in QUESTIONS},
    "stop": Row("stop", "s", 1),
    "start": Row("start with its index", "s", 1),
    "start_cpu": Row("the same, CPU", "s", 1),
    "anew": Row("start without a file, until it is ready", "s", 1),
    "anew_cpu": Row("the same, CPU", "s", 1),
}


async def journal_of_one_run(blobs: NatsBlobs) -> list[bytes]:
    """The entries of a run of two steps, as they are stored."""
    course = Course(run=_TEMPLATE).begin()
    course.say(call("add", a=1, b=2))
    course.arrive(result(course.id(), 3))
    course.say(ANSWER)
    found, hash_ = [], ""
    for entry in course.journal():
        data, hash_ = await pack_entry(entry, hash_, blobs)
        found.append(data)
    return found


async def write(nc: Client, topology: Topology, journal: list[bytes], runs: range) -> None:
    """Adds runs of that journal."""
    published = 0
    for number in runs:
        run = f"{number:032x}"
        rare = number % _RARE_EVERY == 0
        for data in journal:
            own = data.replace(_TEMPLATE.encode(), run.encode())
            if rare:
                own = own.replace(b'"boss"', b'"rare"')
            await nc.publish(topology.journal(run, run), own)
            published += 1
            if published % _UNFLUSHED == 0:
                await nc.flush(60)
    await nc.flush(60)


async def until_listed(http: httpx2.AsyncClient, runs: int) -> None:
    async with asyncio.timeout(_CAUGHT_UP_SECONDS):
        while True:
            page = (await http.get("/v1/runs", params={"count": "true", "limit": 1})).json()
            if page["total"] >= runs:
                return
            await asyncio.sleep(0.5)


async def measure(sizes: list[int]) -> list[dict[str, float]]:
    """A row's values by name, for each size."""
    found = []
    with tempfile.TemporaryDirectory(prefix="cadre-bench-") as name:
        server = NatsServer(Path(name))
        server.start()
        shared = {key: os.environ[key] for key in ("CADRE_INDEX_URL",) if key in os.environ}
        gateway = GatewayProcess(server.url, Path(name), None, **shared)
        nc = await connect(gateway.settings, "bench")
        topology = await provision(nc, gateway.settings)
        journal = await journal_of_one_run(NatsBlobs(nc, topology))
        written = 0
        try:
            for size in sizes:
                found.append(await _at(gateway, nc, topology, journal, range(written, size)))
                written = size
                click.echo(f"{size:,}: {found[-1]}", err=True)
        finally:
            await nc.close()
            gateway.kill()
            server.stop()
    return found


async def _at(
    gateway: GatewayProcess, nc: Client, topology: Topology, journal: list[bytes], runs: range
) -> dict[str, float]:
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=120) as http:
        before = cpu_seconds(gateway.pid)
        await write(nc, topology, journal, runs)
        await until_listed(http, runs.stop)
        read = cpu_seconds(gateway.pid) - before
        values: dict[str, float] = {
            "entry": read * 1e6 / (len(runs) * len(journal)),
            "index": (await http.get("/v1/index")).json()["bytes"] / 1e6,
            "memory": rss_mb(gateway.pid),
        }
        for name, query in QUESTIONS.items():
            values[name] = median([await _cpu_of(gateway, http, query) for _ in range(3)])
    values["stop"], _ = await _timed(gateway.stop)
    values["start"], _ = await _timed(gateway.start)
    values["start_cpu"] = cpu_seconds(gateway.pid)
    gateway.stop()
    gateway.index_file.unlink(missing_ok=True)  # a database is not the pod's
    values["anew"], _ = await _timed(partial(gateway.start, _CAUGHT_UP_SECONDS))
    values["anew_cpu"] = cpu_seconds(gateway.pid)
    return values


async def _cpu_of(gateway: GatewayProcess, http: httpx2.AsyncClient, query: dict[str, Any]) -> float:
    """Milliseconds of CPU for one answer."""
    before = cpu_seconds(gateway.pid)
    for _ in range(_ASKED):
        (await http.get("/v1/runs", params=query)).raise_for_status()
    return (cpu_seconds(gateway.pid) - before) * 1e3 / _ASKED


async def _timed(act: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    done = await asyncio.to_thread(act)
    return time.perf_counter() - began, done


def main() -> None:
    """Prints the table."""
    sizes = sorted(int(one) for one in sys.argv[1:]) or list(SIZES)
    found = uvloop.run(measure(sizes))
    click.echo(f"| kept runs | {' | '.join(f'{size:,}' for size in sizes)} |\n|---{'|---:' * len(sizes)}|")
    for key, (name, unit, digits) in ROWS.items():
        click.echo(f"| {name}, {unit} | {' | '.join(f'{one[key]:.{digits}f}' for one in found)} |")


if __name__ == "__main__":
    main()
