"""Three servers, every stream three times: a leader dies or retires under load, and nothing acknowledged is lost."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.journal import NatsJournal
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision
from cadre.journal.entry import Entry
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from cluster.load import Load, users
from cluster.probe import Probe
from harness.nats_cluster import SIZE, ClusterStack
from harness.patience import patience, until

TEAM = Path(__file__).parents[1] / "e2e" / "team"
REPORT = Path(__file__).parents[2] / "build" / "cluster.json"
USERS = 6
LAG = "cadre_queue_lag"
READER = "a-reader"
"""The first one in the list: who counts only what is reported asks for the last one twice."""
FAILOVER_WITHIN = 30.0
"""Seconds; an election takes 4 to 9 s after the last sign of a leader that was killed."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterStack]:
    with ClusterStack(tmp_path_factory.mktemp("cluster")) as stack:
        stack.model(TEAM / "script.yaml")
        for agent, replica in (("boss", 1), ("boss", 2), ("worker", 1), ("worker", 2), ("helper", 1)):
            stack.agent(TEAM / f"{agent}.yaml", name=f"{agent}-{replica}", start=False)
        stack.tools(TEAM / "tools.py", start=False)
        stack.gateway(start=False)
        # Servers and services at once, as after a power cut: no one waits for anybody, and all get there.
        for service in stack.services.values():
            if not service.is_running:
                service.start(wait=False)
        stack.cluster.start()
        for service in stack.services.values():
            service.wait_ready()
        yield stack


class Watched:
    """The cluster as its operator sees it."""

    def __init__(self, stack: ClusterStack, nc: NatsClient, topology: Topology) -> None:
        self.stack = stack
        self.nc = nc
        self.topology = topology

    async def busiest(self) -> tuple[int, str]:
        """The shard with the most messages, and the server that leads its stream."""
        infos = [await self._info(shard) for shard in range(self.topology.shards)]
        shard = max(range(len(infos)), key=lambda shard: infos[shard]["state"]["messages"])
        return shard, infos[shard]["cluster"]["leader"]

    async def _info(self, shard: int) -> dict[str, Any]:
        info = await jetstream.api(self.nc, f"STREAM.INFO.{self.topology.stream(shard)}")
        assert info["config"]["num_replicas"] == SIZE, info
        return info

    async def journals(self, run: str) -> list[list[Entry]]:
        """Those of the run and all runs below it, each read as the services read it."""
        blobs = NatsBlobs(self.nc, self.topology)
        stored = await History(self.nc, self.topology, blobs).read_tree(run)
        journal = NatsJournal(self.nc, self.topology, blobs)
        runs = sorted({one.entry.run for one in stored})
        return [[one.entry for one in await journal.read(run, each)] for each in runs]


@pytest.fixture
async def watched(stack: ClusterStack) -> AsyncIterator[Watched]:
    settings = Settings(nats_url=stack.cluster.url, replicas=SIZE, shards=2)
    nc = await connect(settings, "test")
    yield Watched(stack, nc, await provision(nc, settings))
    await nc.close()


async def test_a_leader_is_killed_under_load(watched: Watched, tmp_path: Path) -> None:
    """kill -9 of the server that leads the busiest shard; later it comes back and catches up."""
    stack, marks = watched.stack, tmp_path / "marks"
    async with users(USERS, stack.services["gateway"].url, "boss", _task(marks)) as load:
        await load.more(USERS)
        shard, leader = await watched.busiest()
        async with _probe(watched, shard) as probe:
            await probe.resumed(time.monotonic())
            killed, killed_at = time.monotonic(), time.time()
            stack.cluster.servers[leader].kill()
            # A service that starts while there is no leader waits for one.
            late = stack.agent(TEAM / "worker.yaml", name="worker-3", start=False)
            late.start(wait=False)
            await probe.resumed(killed + 1.0)
            await load.more(2 * USERS)
            await asyncio.to_thread(late.wait_ready)
            stack.cluster.servers[leader].start()
            await asyncio.to_thread(stack.cluster.wait_healthy)
            await load.more(USERS)
    gap = probe.longest_gap(killed)
    pause = await _check(watched, load, probe, marks, shard, killed_at)
    _report("leader_killed", load, append_gap_s=gap, journal_gap_s=pause)
    assert gap < FAILOVER_WITHIN


async def test_metrics_are_told_while_a_readers_server_is_away(watched: Watched) -> None:
    """A consumer that lies on one server alone is missing with it: the server waits for it in each list."""
    stack = watched.stack
    stream = watched.topology.stream(0)
    config = {
        "name": READER,
        "ack_policy": "none",
        "num_replicas": 1,
        "inactive_threshold": 3_600_000_000_000,
    }
    reader = {"stream_name": stream, "config": config}
    made = await jetstream.api(watched.nc, f"CONSUMER.CREATE.{stream}.{READER}", reader)
    away = made["cluster"]["leader"]
    stack.cluster.servers[away].kill()
    try:

        async def told() -> bool:
            async with httpx2.AsyncClient(timeout=patience()) as http:
                lines = (await http.get(f"{stack.services['gateway'].url}/metrics")).text.splitlines()
            shown = {line.partition("{")[0].partition(" ")[0] for line in lines}
            lagging = [line for line in lines if line.startswith("cadre_stream_replicas_lagging{")]
            lags = [line for line in lines if line.startswith(f"{LAG}{{") and 'cadre_shard="0"' in line]
            is_seen = any(not line.endswith(" 0.0") for line in lagging)
            return bool(is_seen and lags and {"cadre_dead_letters", "cadre_approvals_waiting"} <= shown)

        await until(told)
        names = [one["name"] for one in await jetstream.consumers(watched.nc, stream)]
        assert "agent-boss" in names
        assert READER not in names
        assert len(names) == len(set(names))
    finally:
        stack.cluster.servers[away].start()
        stack.cluster.wait_healthy()
        await jetstream.api(watched.nc, f"CONSUMER.DELETE.{stream}.{READER}")


async def test_a_leader_retires_under_load(watched: Watched, tmp_path: Path) -> None:
    """Lame duck mode hands the leadership over before the server goes: a restart that was planned is no outage."""
    stack, marks = watched.stack, tmp_path / "marks"
    async with users(USERS, stack.services["gateway"].url, "boss", _task(marks)) as load:
        await load.more(USERS)
        shard, leader = await watched.busiest()
        async with _probe(watched, shard) as probe:
            await probe.resumed(time.monotonic())
            retired, retired_at = time.monotonic(), time.time()
            server = stack.cluster.servers[leader]
            server.retire()
            assert await asyncio.to_thread(server.ended) == 0
            await load.more(USERS)
            server.start()
            await asyncio.to_thread(stack.cluster.wait_healthy)
            await load.more(USERS)
    gap = probe.longest_gap(retired)
    pause = await _check(watched, load, probe, marks, shard, retired_at)
    _report("leader_retired", load, append_gap_s=gap, journal_gap_s=pause)
    assert gap < FAILOVER_WITHIN / 2


def _task(marks: Path) -> str:
    return f"delegate: use effect {marks} 0.1"


def _probe(watched: Watched, shard: int) -> Probe:
    subject = f"{watched.topology.prefix}.code.{shard}.probe.{uuid4().hex}"
    return Probe(watched.nc, watched.topology.stream(shard), subject)


async def _check(watched: Watched, load: Load, probe: Probe, marks: Path, shard: int, since: float) -> float:
    """That nothing was lost or done twice; returns the longest pause of the shard's journals, in seconds."""
    assert set(load.ended) == set(load.accepted)
    wrong = [run for run in load.ended.values() if not _is_right(run)]
    assert not wrong, (wrong[:3], watched.stack.logs())
    assert await probe.lost() == []
    done = (await asyncio.to_thread(marks.read_text)).splitlines()
    assert len(done) == len(set(done)) == len(load.accepted)
    times = [since]
    for run in load.accepted:
        journals = await watched.journals(run)
        assert len(journals) == 3, run
        for entries in journals:
            assert [entry.n for entry in entries] == list(range(1, len(entries) + 1)), entries
            assert len({entry.cause for entry in entries}) == len(entries), entries
        if watched.topology.shard(run) == shard:
            times += [entry.at for entries in journals for entry in entries if entry.at > since]
    return max(later - earlier for earlier, later in pairwise(sorted(times)))


def _is_right(run: dict[str, Any]) -> bool:
    return run["state"] == "success" and "effect is done" in run["output"] and "hello" in run["output"]


def _report(what: str, load: Load, **seconds: float) -> None:
    figures = {
        "runs": len(load.accepted),
        "refused": load.refused,
        **{k: round(v, 2) for k, v in seconds.items()},
    }
    REPORT.parent.mkdir(exist_ok=True)
    report = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    REPORT.write_text(json.dumps(report | {what: figures}, indent=2) + "\n")
    print(f"{what}: {figures}")
