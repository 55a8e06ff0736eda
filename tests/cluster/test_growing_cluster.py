"""Shards that grow on three servers: a claim and a start at once are in one order, which the stream's leader makes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.fenced_value import NatsStartClaims
from cadre.adapters.nats.streams.growth import grow
from cadre.adapters.nats.streams.provision import existing, provision
from cadre.errors import Fenced, RetryableError
from cadre.protocol.messages import Task
from cadre.protocol.topology import Topology, task_id
from cadre.settings import Settings
from harness.nats_cluster import NatsCluster

KEYS = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NatsCluster]:
    cluster = NatsCluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


async def test_a_claim_and_a_start_at_once(cluster: NatsCluster) -> None:
    settings = Settings(nats_url=cluster.url, shards=2, replicas=3)
    nc = await connect(settings, "test")
    try:
        await provision(nc, settings)
        # The settings of the first start need not be known.
        bare = Settings(nats_url=cluster.url)
        assert (await grow(nc, bare, 5, 0.0, lambda _: None)).generations == (2, 5)
        for shard in range(5):
            info = await jetstream.stream_info(nc, Topology(5).stream(shard))
            assert info is not None
            assert info["config"]["num_replicas"] == 3
        grown, stale = await existing(nc, settings), Topology(2)
        assert grown is not None
        claims, bus = NatsStartClaims(nc, grown), NatsBus(nc, stale, NatsBlobs(nc, stale))

        async def start(run: str) -> bool:
            task = Task(id=task_id(run), tree=run, run=run, at=1.0, agent="a", task="Once.")
            try:
                await bus.start(task, "gateway")
            except Fenced:
                return False
            return True

        async def is_in_order(number: int) -> bool:
            """Return whether the task lies before the claim, or is not there; True if it is there."""
            run = f"{uuid4().hex[:31]}0"
            first, second = start(run), claims.claim(run, 1)
            if number % 2:
                claimed, has_started = await asyncio.gather(second, first)
            else:
                has_started, claimed = await asyncio.gather(first, second)
            assert claimed == 1
            stream = stale.stream_of(run)
            task = await jetstream.last(nc, stream, stale.inbox_of_run(run, run))
            claim = await jetstream.last(nc, stream, stale.start_claim(run))
            assert claim is not None
            assert has_started == (task is not None)
            assert task is None or task.seq < claim.seq
            return has_started

        # Of one run at once, as two gateways do: it is one task.
        run = f"{uuid4().hex[:31]}0"
        ended = await asyncio.gather(*(start(run) for _ in range(8)), return_exceptions=True)
        assert all(one is True or isinstance(one, RetryableError) for one in ended), ended
        assert await start(run)
        started = await asyncio.gather(*map(is_in_order, range(KEYS)))
        assert {True, False} == set(started), started
    finally:
        await nc.close()
