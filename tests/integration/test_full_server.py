"""Executors on a server that has no room left: they live on, and what their tools did is reported once there is."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.provision import check
from cadre.adapters.nats.streams.store_watch import NatsStorage, StorageUsage, account_usages
from cadre.errors import BusFull, BusUnavailable
from cadre.journal.events import ToolAnswered
from cadre.protocol.topology import call_id
from cadre.settings import Settings
from harness.full_server import FullServer, fill
from harness.patience import until
from integration.executor_bench import Bench
from integration.gateway_world import CALLED, FINISHED, GatewayProcess, World, new_run, with_boss
from integration.remains import full_tree, gone

MB = 1024 * 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FullServer]:
    one = FullServer(tmp_path, 4 * MB)
    one.start()
    yield one
    one.stop()


@pytest.fixture
async def bench(server: FullServer, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench.open(Settings(nats_url=server.url, shards=2), tmp_path) as bench:
        yield bench


async def test_a_full_server_is_a_bus_that_comes_back(bench: Bench, server: FullServer) -> None:
    await fill(bench.nc, bench.topology)
    call = bench.new_call("pay")
    with pytest.raises(BusFull, match="no room left"):
        await bench.send(call)
    server.raise_limit(8 * MB)

    async def stored() -> bool:
        try:
            await bench.send(call)
        except BusUnavailable:
            return False
        return True

    await until(stored)


@pytest.mark.parametrize("tool", ["look", "pay"])
async def test_a_result_waits_for_room(bench: Bench, server: FullServer, tool: str) -> None:
    executor = await bench.start()
    call = bench.staged_call(tool)
    await bench.send(call)
    visit = await bench.visit()
    await fill(bench.nc, bench.topology)
    await visit.let_go("seen")
    inbox = bench.topology.inbox("boss", tool, call.tree, call.run)
    before = (await jetstream.api(bench.nc, "INFO"))["storage"]
    assert await jetstream.last(bench.nc, bench.topology.stream_of(call.tree), inbox) is None
    server.raise_limit(before + 4 * MB)
    # Core subscribers hear what is published, stored or not: what counts is what the stream holds.

    async def stored() -> bool:
        with contextlib.suppress(BusUnavailable):  # while the server reads its file again
            return await jetstream.last(bench.nc, bench.topology.stream_of(call.tree), inbox) is not None
        return False

    await until(stored)
    assert (await bench.answer(call)).output == "seen"
    await until(lambda: bench.all_acked(tool))
    assert bench.effects_of(call) == 1, "it was not run again for want of room"
    assert executor.returncode is None


async def test_a_stream_that_makes_room_by_itself_is_warned_of(bench: Bench) -> None:
    assert await check(bench.nc, bench.settings) == []
    name = bench.topology.stream(1)
    config = (await jetstream.api(bench.nc, f"STREAM.INFO.{name}"))["config"]
    await jetstream.api(bench.nc, f"STREAM.UPDATE.{name}", config | {"max_bytes": MB})
    (warning,) = await check(bench.nc, bench.settings)
    assert f"{name} has max_bytes={MB}" in warning


async def journal_only(world: World) -> str:
    """An ended run as an import leaves it: nothing was sent to it here."""
    run = new_run()
    root = world.scribe(run)
    await root.write(root.accepted(), CALLED)
    for n in range(30):
        await root.write(ToolAnswered(call=call_id(run, 1, n), tool="look", output="o" * 1_000))
    await root.write(FINISHED)
    await world.listed(run, state="success")
    return run


async def test_runs_are_removed_from_a_full_server_and_make_room(server: FullServer, tmp_path: Path) -> None:
    gateway = GatewayProcess(server.url, tmp_path)
    try:
        async with with_boss(gateway) as world:
            large, small = new_run(), new_run()
            blobs = await full_tree(world, large)
            await world.listed(large, state="success")
            await world.ended_run(small)
            imported = await journal_only(world)
            await fill(world.nc, world.topology)

            async def told() -> bool:
                answer = await world.http.get("/readyz")
                assert answer.status_code == 200, "who could remove runs else"
                return "store" in answer.json()

            await until(told)
            metrics = (await world.http.get("/metrics")).text
            assert 'cadre_store_trouble{cadre_store_state="full"} 1.0' in metrics
            assert 'cadre_store_trouble{cadre_store_state="lost"} 0.0' in metrics
            task = {"agent": "boss", "task": "Begin."}
            assert (await world.http.post("/v1/runs", json=task)).status_code == 429
            refused = await world.http.delete(f"/v1/runs/{small}")
            assert (refused.status_code, refused.json()["code"]) == (503, "bus-unavailable")
            answer = await world.http.delete(f"/v1/runs/{imported}")
            assert answer.status_code == 200, answer.text
            assert (await world.http.get(f"/v1/runs/{imported}")).status_code == 404
            await fill(world.nc, world.topology)
            answer = await world.http.delete(f"/v1/runs/{large}")
            assert answer.status_code == 200, answer.text
            await gone(world, large, *blobs)
            assert (await world.http.delete(f"/v1/runs/{small}")).status_code == 200, "there is room again"
    finally:
        gateway.kill()


async def test_where_there_is_least_room(bench: Bench) -> None:
    tree = "t"
    room = await NatsStorage(bench.nc, bench.topology, 0).fullest(tree)
    assert room is not None
    assert (room.where, room.limit) == ("the NATS account", 4 * MB)
    await jetstream.append(bench.nc, bench.topology.inbox("boss", "gateway", tree, tree), b"x" * 50_000)
    room = await NatsStorage(bench.nc, bench.topology, 100_000).fullest(tree)
    assert room is not None
    assert (room.where, room.limit) == (f"stream {bench.topology.stream_of(tree)}", 100_000)
    assert 50_000 < room.used < 52_000
    assert 0.5 < room.share < 0.52


def test_an_account_with_a_limit_for_each_number_of_copies() -> None:
    unlimited, tiers = {"max_storage": -1}, {"R1": {"storage": 5, "limits": {"max_storage": 10}}}
    assert account_usages({"storage": 5, "limits": unlimited}) == []
    assert account_usages({"limits": unlimited, "tiers": tiers | {"R3": {"storage": 5, "limits": unlimited}}}) == [
        StorageUsage("the NATS account (R1)", 5, 10)
    ]
