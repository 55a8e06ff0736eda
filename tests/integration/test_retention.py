"""Runs that are removed some time after their end, by whichever gateway is there."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cadre.adapters.nats.blobs import NatsBlobs
from cadre.adapters.nats.connection.connect import connect
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import provision, shard_config
from cadre.journal.events import RunAccepted
from cadre.protocol.messages import Task
from cadre.protocol.topology import Topology, task_id
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import until
from integration.gateway_world import FINISHED, GatewayProcess, World, new_run, with_boss
from integration.remains import full_tree, gone, left_of

SECONDS = 4.0
KEEP = str(SECONDS / 86400)


@asynccontextmanager
async def forgetful(server: NatsServer, folder: Path, keep: str = KEEP) -> AsyncIterator[tuple[GatewayProcess, World]]:
    """A gateway that keeps ended runs for some seconds."""
    gateway = GatewayProcess(server.url, folder, CADRE_KEEP_DAYS=keep)
    try:
        async with with_boss(gateway) as world:
            yield gateway, world
    finally:
        gateway.kill()


async def is_gone(world: World, run: str) -> bool:
    return (await world.http.get(f"/v1/runs/{run}")).status_code == 404


async def test_an_ended_run_is_removed_when_its_time_is_over(nats_server: NatsServer, tmp_path: Path) -> None:
    async with forgetful(nats_server, tmp_path) as (_, world):
        run, unended, later = new_run(), new_run(), new_run()
        waiting = world.scribe(unended)
        await waiting.write(waiting.accepted())
        await full_tree(world, run)
        ended = time.monotonic()
        await world.listed(run, state="success")
        await until(lambda: is_gone(world, run))
        assert time.monotonic() - ended >= SECONDS - 0.5
        # What is young of its blobs stays for now: somebody may be about to name it.
        objects = f"$O.{world.topology.blob_bucket}."

        async def only_blobs() -> bool:
            return all(subject.startswith(objects) for subject in await left_of(world, run))

        await until(only_blobs)
        # A run that has not ended stays, however old it is; one that ends later goes later.
        await world.finished_run(later)
        assert (await world.listed(unended))["state"] == "running"
        await waiting.write(FINISHED)
        await until(lambda: is_gone(world, unended))
        await until(lambda: is_gone(world, later))


async def test_what_became_due_while_no_gateway_was_there_is_removed_by_the_next(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with forgetful(nats_server, tmp_path) as (gateway, world):
        runs = [new_run() for _ in range(5)]
        for run in runs:
            await world.ended_run(run)
        assert gateway.stop() == 0
        await asyncio.sleep(SECONDS)
        gateway.start()
        for run in runs:
            await gone(world, run)


async def test_for_ever_is_for_ever(nats_server: NatsServer, tmp_path: Path) -> None:
    async with forgetful(nats_server, tmp_path, keep="0") as (_, world):
        run, mark = new_run(), new_run()
        await world.ended_run(run)
        await world.ended_run(mark)
        # A janitor at work, which leaves them alone.
        assert (await world.http.delete(f"/v1/runs/{mark}")).status_code == 200
        assert not await is_gone(world, run)


async def test_the_time_counts_from_the_end_on_record_here(nats_server: NatsServer, tmp_path: Path) -> None:
    """Not from what the entry says: its writer's clock may be wrong, and a run may come from elsewhere."""
    async with forgetful(nats_server, tmp_path, keep=str(3600 / 86400)) as (_, world):
        run = new_run()
        scribe = world.scribe(run)
        old = Task(id=task_id(run), tree=run, run=run, at=1.0, agent="boss", task="x")
        await scribe.write(RunAccepted(task=old, spec=scribe.accepted().spec, decided_by="tool_calling"))
        await scribe.write(FINISHED, at=1.0)
        await world.listed(run, state="success")
        mark = new_run()
        await world.ended_run(mark)
        assert (await world.http.delete(f"/v1/runs/{mark}")).status_code == 200
        assert not await is_gone(world, run)


# --- blobs


@pytest.fixture
async def blobs(settings: Settings) -> AsyncIterator[NatsBlobs]:
    nc = await connect(settings, "test")
    yield NatsBlobs(nc, await provision(nc, settings))
    await nc.close()


async def test_a_blob_is_spared_when_it_was_put_since_it_was_judged(blobs: NatsBlobs) -> None:
    ref = await blobs.put(b"x" * 300_000)
    assert not await blobs.remove(ref, time.time() - 60)
    assert await blobs.get(ref) == b"x" * 300_000
    assert await blobs.remove(ref, time.time() + 60)
    assert await blobs.remove(ref), "removing what is not there is no error"
    await blobs.put(b"x" * 300_000)
    assert await blobs.get(ref) == b"x" * 300_000


async def test_putting_an_old_blob_again_makes_it_young(blobs: NatsBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = await blobs.put(b"old")
    first = await blobs._objects.read(ref.removeprefix("blob:"))
    await blobs.put(b"old")
    assert await blobs._objects.read(ref.removeprefix("blob:")) == first, "it is young: nothing is written"
    monkeypatch.setattr("cadre.adapters.nats.blobs._TOUCH_AFTER_SECONDS", 0.0)
    await blobs.put(b"old")
    touched = await blobs._objects.read(ref.removeprefix("blob:"))
    assert first is not None
    assert touched is not None
    assert touched.at > first.at
    assert not await blobs.remove(ref, touched.at)
    assert await blobs.get(ref) == b"old"


async def test_a_removal_and_a_put_at_once_never_leave_a_blob_that_is_said_to_be_there(
    blobs: NatsBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cadre.adapters.nats.blobs._TOUCH_AFTER_SECONDS", 0.0)
    ref = await blobs.put(b"contended")
    for _ in range(30):
        begun = time.time() - 0.001
        await asyncio.gather(blobs.remove(ref, begun), blobs.put(b"contended"), blobs.remove(ref, begun))
        assert await blobs.get(ref) == b"contended"


async def test_a_removal_that_died_halfway_is_ended_by_the_next(blobs: NatsBlobs, settings: Settings) -> None:
    ref = await blobs.put(b"y" * 300_000)
    name = ref.removeprefix("blob:")
    found = await blobs._objects.read(name)
    assert found is not None
    await blobs._objects.replace(name, found.seq, found.fields | {"deleted": True})
    assert await blobs.remove(ref)
    state = (await jetstream.api(blobs._nc, f"STREAM.INFO.OBJ_{settings.prefix}-blobs"))["state"]
    assert state["messages"] == 0


# --- age limits


async def test_an_age_limit_is_removed(settings: Settings) -> None:
    nc = await connect(settings, "test")
    month = 30 * 24 * 3600 * 1_000_000_000
    earlier = Topology(2, settings.prefix)
    for shard in range(2):
        config = shard_config(earlier, shard, 1) | {"max_age": month}
        assert "error" not in await jetstream.api(nc, f"STREAM.CREATE.{config['name']}", config)
    await nc.jetstream().publish(f"{settings.prefix}.run.0.t.t", b"kept")
    topology = await provision(nc, settings)
    bucket = f"OBJ_{topology.blob_bucket}"
    config = (await jetstream.api(nc, f"STREAM.INFO.{bucket}"))["config"]
    assert "error" not in await jetstream.api(nc, f"STREAM.UPDATE.{bucket}", config | {"max_age": month})
    await provision(nc, settings)
    for stream in (topology.stream(0), topology.stream(1), bucket):
        assert (await jetstream.api(nc, f"STREAM.INFO.{stream}"))["config"]["max_age"] == 0
    held = await jetstream.last(nc, topology.stream(0), f"{settings.prefix}.run.0.t.t")
    assert held is not None
    assert held.data == b"kept"
    await nc.close()


async def test_a_record_for_an_agent_that_is_away_has_no_end(world: World) -> None:
    run = new_run()
    task = Task(id=task_id(run), tree=run, run=run, at=1.0, agent="away", task="x")
    await world.bus.send(task, "gateway")
    stream = world.topology.stream_of(run)
    held = await jetstream.last(world.nc, stream, world.topology.inbox("away", "gateway", run, run))
    assert held is not None
    found = await jetstream.read(world.nc, stream, held.seq)
    assert found is not None
    assert "Nats-TTL" not in found[1]
    assert (await world.http.delete(f"/v1/runs/{run}", params={"force": True})).status_code == 200
