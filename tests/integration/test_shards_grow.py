"""Shards that grow: of one deployment, by steps that may be cut off, and a keyed start that is one run throughout."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.bus import NatsBus
from cadre.adapters.nats.connection.client import NatsClient
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.queues.consumers import ensure_consumer
from cadre.adapters.nats.queues.queue import NatsDelivery, Queue, ShardQueues
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.backup import back_up, read_backup
from cadre.adapters.nats.streams.fenced_value import NatsStartClaims
from cadre.adapters.nats.streams.growth import grow
from cadre.adapters.nats.streams.provision import check, existing, provision
from cadre.adapters.nats.streams.restore import RestoreListener, restore
from cadre.adapters.nats.streams.shard_watch import ShardWatch
from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import Fenced, SetupError
from cadre.protocol.cards import AgentCard
from cadre.protocol.messages import Task
from cadre.protocol.topology import (
    Layout,
    Subject,
    Topology,
    UnknownGeneration,
    generation_of,
    in_generation,
    task_id,
)
from cadre.service.platform import open_platform
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import patience
from integration.gateway_world import GatewayProcess, World, entered, new_run, with_boss

TOLD: list[str] = []


def first_id() -> str:
    return f"{new_run()[:31]}0"


@pytest.fixture
async def nc(settings: Settings) -> AsyncIterator[NatsClient]:
    client = await connect(settings, "test")
    await provision(client, settings)
    yield client
    await client.close()


async def grow_beside(world: World, settings: Settings, shards: int) -> None:
    """Grow a deployment one of whose replicas is this process."""
    watch = ShardWatch(world.nc, world.topology)
    watching = asyncio.create_task(watch.run())
    try:
        await grow(world.nc, settings, shards, patience(), TOLD.append)
        await watch.reload()
    finally:
        watching.cancel()


async def inboxes(nc: NatsClient, topology: Topology, run: str) -> set[str]:
    """The runs that have a task and whose ids differ from this one in the last character at most."""
    found = set[str]()
    for shard in range(topology.shards):
        everything = topology.below(Subject.INBOX, shard=shard)
        for subject in await jetstream.subjects(nc, topology.stream(shard), everything):
            found.add(topology.parse(subject)[0])
    return {one for one in found if one[:-1] == run[:-1]}


async def layout(nc: NatsClient, settings: Settings) -> Layout:
    found = await existing(nc, settings)
    assert found is not None
    return found.layout


async def test_a_deployment_grows_and_its_trees_stay(nc: NatsClient, settings: Settings) -> None:
    before = await existing(nc, settings)
    assert before is not None
    await ensure_consumer(nc, before.stream(0), "agent-a", before.inbox_filter(0, "a"))
    found = await grow(nc, settings, 5, 0.0, TOLD.append)
    assert found.generations == (2, 5)
    after = await existing(nc, settings)
    assert after is not None
    assert (after.shards, after.newest) == (5, 1)
    old = first_id()
    assert after.stream_of(old) == before.stream_of(old)
    shards = {after.shard(in_generation(first_id(), 1)) for _ in range(200)}
    assert shards == set(range(5))
    # The queues are there, each for its own shard.
    for shard in range(2, 5):
        (queue,) = await jetstream.consumers(nc, after.stream(shard))
        assert queue["name"] == "agent-a"
        assert queue["config"]["filter_subject"] == after.inbox_filter(shard, "a")
    # A service that starts later, or is still an earlier one, finds nothing wrong with any stream.
    assert (await provision(nc, settings)).shards == 5
    # Once more, to more: ids of all generations have their place.
    assert (await grow(nc, settings, 6, 0.0, TOLD.append)).generations == (2, 5, 6)
    assert await layout(nc, settings) == ((2, 5, 6), 0, False)


@pytest.mark.parametrize(("to", "words"), [(2, "2"), (1, "2"), (257, "256")])
async def test_shards_never_become_fewer(nc: NatsClient, settings: Settings, to: int, words: str) -> None:
    with pytest.raises(SetupError, match=words):
        await grow(nc, settings, to, 0.0, TOLD.append)
    assert await layout(nc, settings) == ((2,), 0, False)


class Cut(Exception):
    """The process ends here."""


@pytest.mark.parametrize("calls", range(12))
async def test_a_growth_that_is_cut_off_at_any_request_goes_on(
    nc: NatsClient, settings: Settings, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each request that changes something at the server."""
    before = await existing(nc, settings)
    assert before is not None
    await ensure_consumer(nc, before.stream(0), "agent-a", before.inbox_filter(0, "a"))
    left = [calls]
    api = jetstream.api

    async def cut_off(client: NatsClient, what: str, body: dict[str, Any] | None = None) -> object:
        if what.startswith(("STREAM.CREATE", "STREAM.UPDATE", "CONSUMER.CREATE")):
            if not left[0]:
                raise Cut
            left[0] -= 1
        return await (api(client, what) if body is None else api(client, what, body))

    with monkeypatch.context() as patch:
        patch.setattr(jetstream, "api", cut_off)
        with pytest.raises(Cut):
            await grow(nc, settings, 5, 0.0, TOLD.append)
    begun = (await layout(nc, settings))[1]
    assert begun == (5 if calls > 0 else 0)
    told = [line for line in await check(nc, settings) if "cadre shards grow 5" in line]
    assert len(told) == bool(begun)
    if begun:
        for other in (4, 6):
            with pytest.raises(SetupError, match="cadre shards grow 5"):
                await grow(nc, settings, other, 0.0, TOLD.append)
    assert (await provision(nc, settings)).newest == 0
    assert (await grow(nc, settings, 5, 0.0, TOLD.append)).generations == (2, 5)


async def test_of_two_growths_at_once_one_wins(nc: NatsClient, settings: Settings) -> None:
    ended = await asyncio.gather(
        *(grow(nc, settings, to, 0.0, TOLD.append) for to in (4, 5, 4, 5)), return_exceptions=True
    )
    found = await layout(nc, settings)
    assert found[0] in ((2, 4), (2, 5))
    assert all(isinstance(one, SetupError) or one.generations == found[0] for one in ended)  # type: ignore[union-attr]


async def test_no_tree_begins_before_the_live_services_take_from_the_new_shards(
    nc: NatsClient, settings: Settings
) -> None:
    platform = await open_platform("test", settings)
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def note(delivery: NatsDelivery) -> None:
        seen.put_nowait(delivery.subject)
        await delivery.ack()

    queues = ShardQueues(
        platform.nc,
        platform.shards,
        "agent-a",
        partial(platform.topology.inbox_filter, agent="a"),
        note,
        FairLimiter(4),
        Queue,
    )
    watching: asyncio.Task[None] | None = None
    try:
        await queues.start()
        await platform.registry.announce([platform.presence(agent=AgentCard(name="a", description="A."))])
        with pytest.raises(SetupError, match="agent a "):
            await grow(nc, settings, 3, 0.5, TOLD.append)
        assert await layout(nc, settings) == ((2,), 3, True)
        assert platform.topology.newest == 0
        watching = asyncio.create_task(platform.shards.run())
        assert (await grow(nc, settings, 3, patience(), TOLD.append)).generations == (2, 3)
        assert len(queues.queues) == 3
        await platform.shards.reload()
        assert platform.topology.newest == 1
        topology = platform.topology
        run = next(run for run in (in_generation(first_id(), 1) for _ in range(200)) if topology.shard(run) == 2)
        subject = topology.inbox("a", "gateway", run, run)
        await jetstream.append(nc, subject, b"{}")
        assert await asyncio.wait_for(seen.get(), patience()) == subject
    finally:
        if watching is not None:
            watching.cancel()
        await queues.drain(1.0)
        await platform.registry.stop()
        await platform.nc.close()


async def test_an_id_of_a_generation_that_is_not_known_is_asked_for(nc: NatsClient, settings: Settings) -> None:
    stale = Topology(2, settings.prefix)
    watch = ShardWatch(nc, stale)
    run = in_generation(first_id(), 1)
    assert not await watch.knows(run)
    with pytest.raises(UnknownGeneration):
        stale.stream_of(run)
    await grow(nc, settings, 4, 0.0, TOLD.append)
    assert await watch.knows(run)
    assert stale.stream_of(run) == stale.stream(stale.shard(run))
    assert not await watch.knows(in_generation(first_id(), 2))


async def test_a_claim_keeps_a_gateway_that_does_not_know_of_it_from_starting(
    nc: NatsClient, settings: Settings
) -> None:
    await grow(nc, settings, 4, 0.0, TOLD.append)
    stale, fresh = Topology(2, settings.prefix), await existing(nc, settings)
    assert fresh is not None
    bus = NatsBus(nc, stale, NatsBlobs(nc, stale))

    def task(run: str) -> Task:
        return Task(id=task_id(run), tree=run, run=run, at=1.0, agent="a", task="Once.")

    claims = NatsStartClaims(nc, fresh)
    claimed, free = first_id(), first_id()
    assert {await claims.claim(claimed, generation) for generation in (1, 2, 1)} == {1}
    with pytest.raises(Fenced):
        await bus.start(task(claimed), "gateway")
    await bus.start(task(free), "gateway")
    # Sent again, it is the same task.
    await bus.start(task(free), "gateway")
    held = [one async for one in jetstream.messages(nc, stale.stream_of(free), stale.inbox_of_run(free, free))]
    assert len(held) == 1


async def test_a_gateway_that_stood_still_through_a_growth_starts_no_run_twice(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """It knows of one generation when it is asked, and the other one has begun the same keys' runs in the next."""
    older = await asyncio.to_thread(GatewayProcess, nats_server.url, tmp_path)
    newer = await asyncio.to_thread(GatewayProcess, nats_server.url, tmp_path, older.settings)
    try:
        async with with_boss(older) as world:

            async def begin(gateway: GatewayProcess, key: str) -> str:
                """By HTTP, once more for as long as the gateway says that this may help."""
                async with httpx2.AsyncClient(base_url=gateway.url, timeout=patience()) as http:
                    while True:
                        body = {"agent": "boss", "task": "Once."}
                        answer = await http.post("/v1/runs", json=body, headers={"Idempotency-Key": key})
                        if answer.status_code != 503:
                            assert answer.status_code == 202, answer.text
                            return str(answer.json()["id"])

            early = [f"early {number}" for number in range(4)]
            before = {key: await begin(older, key) for key in early}
            await asyncio.to_thread(older.pause)
            await grow_beside(world, older.settings, 5)
            probes = (f"probe {number}" for number in itertools.count())
            while generation_of(await begin(newer, next(probes))) != 1:
                pass
            late = [f"late {number}" for number in range(12)]
            by_newer = {key: await begin(newer, key) for key in late}
            assert {generation_of(run) for run in by_newer.values()} == {1}
            assert {key: await begin(newer, key) for key in early} == before
            # They lie in its sockets when it goes on.
            asked = [asyncio.create_task(begin(older, key)) for key in (*late, *early)]
            await asyncio.sleep(0)
            older.go_on()
            answered = dict(zip((*late, *early), await asyncio.gather(*asked), strict=True))
            assert answered == by_newer | before
            topology = await existing(world.nc, older.settings)
            assert topology is not None
            for key, run in by_newer.items():
                assert await inboxes(world.nc, topology, run) == {run}, key
    finally:
        older.kill()
        newer.kill()


async def test_a_backup_holds_all_generations(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server:
        settings = Settings(nats_url=server.url, shards=2)
        client = await connect(settings, "test")
        try:
            await provision(client, settings)
            await grow(client, settings, 3, 0.0, TOLD.append)
            topology = await existing(client, settings)
            assert topology is not None
            run = next(run for run in (in_generation(first_id(), 1) for _ in range(99)) if topology.shard(run) == 2)
            await jetstream.append(client, topology.journal(run, run), b"{}")
            await back_up(client, settings, tmp_path / "saved", 1.0, lambda _: None)
            # What has grown since then is replaced, also where that growth was cut off.
            await grow(client, settings, 4, 0.0, TOLD.append)
            told = RestoreListener(lambda _: None, lambda *_: None)
            saved = read_backup(tmp_path / "saved")
            await restore(client, settings, tmp_path / "saved", saved, replace=True, told=told)
            assert await layout(client, settings) == ((2, 3), 0, False)
            assert await jetstream.stream_info(client, topology.stream(3)) is None
            assert (await jetstream.last(client, topology.stream_of(run), topology.journal(run, run))) is not None
            assert (await grow(client, settings, 5, 0.0, TOLD.append)).generations == (2, 3, 5)
        finally:
            await client.close()


async def test_a_run_of_a_generation_that_there_is_not_is_not_imported(nats_server: NatsServer, tmp_path: Path) -> None:
    there = await asyncio.to_thread(GatewayProcess, nats_server.url, tmp_path)
    here = await asyncio.to_thread(GatewayProcess, nats_server.url, tmp_path)
    try:
        async with with_boss(there) as one, entered(here) as other:
            run = in_generation(first_id(), 1)
            assert (await one.http.get(f"/v1/runs/{run}")).status_code == 404
            await grow_beside(one, there.settings, 3)
            # An id that its gateway does not know yet has it ask for the shards.
            assert (await one.http.get(f"/v1/runs/{run}")).status_code == 404
            await one.finished_run(run)
            file = (await one.http.get(f"/v1/runs/{run}/export")).content
            refused = await other.http.post("/v1/runs/import", content=file)
            assert (refused.status_code, refused.json()["code"]) == (409, "unknown-shards"), refused.text
            assert "cadre shards grow 3" in refused.json()["detail"]
            await grow(other.nc, here.settings, 3, patience(), TOLD.append)
            assert (await other.http.post("/v1/runs/import", content=file)).status_code in (200, 201)
            assert (await other.http.get(f"/v1/runs/{run}")).json()["state"] == "success"
            assert (await other.http.delete(f"/v1/runs/{run}")).status_code in (200, 202, 204)
    finally:
        there.kill()
        here.kill()
