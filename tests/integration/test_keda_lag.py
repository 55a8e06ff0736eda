"""Tests of what KEDA would read of a real server for the rendered triggers: all that waits and all that is at work, no
more."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cadre.adapters.nats.connection.connect import NatsClient, connect
from cadre.adapters.nats.queues.consumers import provision_roles
from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.deploy.k8s.components import Component
from cadre.deploy.k8s.render import scaled_object
from cadre.deploy.k8s.values import Scale, read_values
from cadre.protocol.nats_users import Role
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.nats_server import NatsServer, free_port
from harness.patience import patience

VALUES = read_values({"nats": {"shards": 2}})
TOPOLOGY = Topology(2)
AGENT = Component("agent", "digger", ["agent"], [TOPOLOGY.agent_consumer("digger")], ["--agent", "digger"])
TREES = {TOPOLOGY.shard(tree): tree for tree in ("a", "b", "c", "d")}
"""One of each shard."""


class World:
    def __init__(self, monitor: int, nc: NatsClient) -> None:
        self._monitor = monitor
        self.nc = nc
        spec = scaled_object(AGENT, VALUES, Scale(min=0, max=10, lag=20))["spec"]
        self.triggers: dict[int, dict[str, str]] = {
            shard: trigger["metadata"] for shard, trigger in enumerate(spec["triggers"])
        }

    async def send(self, shard: int, count: int) -> None:
        """Records for the agent, all of one tree."""
        tree = TREES[shard]
        for number in range(count):
            subject = TOPOLOGY.inbox("digger", "gateway", tree, f"{tree}_{number}")
            await self.nc.request(subject, b"{}", timeout=patience())

    async def lag(self, shard: int) -> int:
        """By the rule of KEDA's scaler nats-jetstream: pending and unacknowledged of the consumer."""
        metadata = self.triggers[shard]
        query = {"acc": metadata["account"], "consumers": "true", "config": "true"}
        async with httpx2.AsyncClient(trust_env=False, timeout=patience()) as client:
            answer = await client.get(f"http://127.0.0.1:{self._monitor}/jsz", params=query)
        account = next(a for a in answer.json()["account_details"] if a["name"] == metadata["account"])
        stream = next(s for s in account["stream_detail"] if s["name"] == metadata["stream"])
        consumer: dict[str, Any] = next(c for c in stream["consumer_detail"] if c["name"] == metadata["consumer"])
        return int(consumer["num_pending"]) + int(consumer["num_ack_pending"])

    async def becomes(self, shard: int, lag: int) -> None:
        """The server's figures follow acknowledgements a moment later."""
        async with asyncio.timeout(patience()):
            while True:
                if await self.lag(shard) == lag:
                    return
                await asyncio.sleep(0.05)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    monitor = free_port()
    server = NatsServer(tmp_path, more=f"\nhttp: 127.0.0.1:{monitor}\n")
    server.start()
    settings = Settings(nats_url=server.url, shards=2)
    await provision_roles(settings, [Role(kind="agent", name="digger")])
    nc = await connect(settings, "test")
    try:
        yield World(monitor, nc)
    finally:
        await nc.close()
        server.stop()


async def test_before_any_host_has_started_all_that_waits_counts_on_its_own_shard(world: World) -> None:
    assert [await world.lag(0), await world.lag(1)] == [0, 0]
    await world.send(0, 25)
    await world.send(1, 3)
    assert [await world.lag(0), await world.lag(1)] == [25, 3]
    wanted = [math.ceil(await world.lag(shard) / int(world.triggers[shard]["lagThreshold"])) for shard in (0, 1)]
    assert wanted == [3, 1]


async def test_work_in_hand_counts_until_it_is_acknowledged(world: World) -> None:
    begun: set[int] = set()
    handed_back: list[NatsDelivery] = []
    four, again, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handle(delivery: NatsDelivery) -> None:
        if not handed_back:
            handed_back.append(delivery)
            await delivery.nak()
            return
        if delivery.deliveries > 1:
            again.set()
        begun.add(delivery.seq)
        if len(begun) == 4:
            four.set()
        await go_on.wait()
        await delivery.ack()

    await world.send(0, 12)
    queue = Queue(
        world.nc,
        TOPOLOGY.stream(0),
        TOPOLOGY.agent_consumer("digger"),
        TOPOLOGY.inbox_filter(0, "digger"),
        handle,
        limit=4,
    )
    await queue.start()
    async with asyncio.timeout(patience()):
        await four.wait()
    # Four are at work, one was handed back, the rest has waited all the time: none of them is done.
    assert await world.lag(0) == 12
    go_on.set()
    async with asyncio.timeout(patience()):
        await again.wait()
    await world.becomes(0, 0)
    assert await world.lag(1) == 0
    await queue.drain(1.0)
