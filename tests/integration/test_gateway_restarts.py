"""A gateway and a nats-server that are stopped, killed and started again under open event streams."""

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harness.nats_server import NatsServer
from harness.patience import patience, until
from integration.gateway_world import (
    CALLED,
    FINISHED,
    GatewayProcess,
    SseEvent,
    World,
    entered,
    new_run,
    sse_events,
)


@asynccontextmanager
async def deployed(server: NatsServer, folder: Path) -> AsyncIterator[tuple[GatewayProcess, World]]:
    """Its own gateway."""
    gateway = GatewayProcess(server.url, folder)
    try:
        async with entered(gateway) as world:
            yield gateway, world
    finally:
        gateway.kill()


async def test_a_restarted_gateway_knows_the_runs_and_resumes_streams(nats_server: NatsServer, tmp_path: Path) -> None:
    async with deployed(nats_server, tmp_path) as (gateway, world):
        old, run = new_run(), new_run()
        await world.finished_run(old)
        scribe = world.scribe(run)
        await scribe.write(scribe.accepted())
        async with world.http.stream("GET", f"/v1/runs/{run}/events") as answer, asyncio.timeout(patience()):
            stream = sse_events(answer)
            last = (await anext(stream)).mark
            status = await asyncio.to_thread(gateway.stop)
            assert [one async for one in stream] == [], "a stopping gateway ends its streams"
        assert status == 0, gateway.log()
        missed = await scribe.write(CALLED)
        gateway.start()
        assert (await world.listed(old, state="success"))["state"] == "success"
        assert re.search(r"cadre\.gateway: .*/journals': [1-9]", gateway.log()), "it goes on from its places"

        resumed = asyncio.create_task(world.read(run, headers={"Last-Event-ID": str(last)}))
        end = await scribe.write(FINISHED)
        assert [one.mark for one in await resumed] == [missed, end, None]

        gateway.kill()
        gateway.start()
        assert {one["id"] for one in (await world.http.get("/v1/runs")).json()["runs"]} == {old, run}


async def test_a_lost_or_damaged_index_is_made_anew(nats_server: NatsServer, tmp_path: Path) -> None:
    async with deployed(nats_server, tmp_path) as (gateway, world):
        run = await world.ended_run()
        for damage in (lambda: gateway.index_file.write_bytes(b"none"), gateway.index_file.unlink):
            gateway.stop()
            damage()
            gateway.start()
            assert (await world.listed(run, state="success"))["state"] == "success"
        assert re.search(r"WARNING cadre\.\S+: .*file is not a database", gateway.log())


async def test_an_index_is_made_anew_while_the_gateway_serves(nats_server: NatsServer, tmp_path: Path) -> None:
    async with deployed(nats_server, tmp_path) as (gateway, world):
        runs: list[str] = []
        await write_runs(world, 30, runs)
        gone = await world.ended_run()
        assert (await world.http.delete(f"/v1/runs/{gone}")).status_code == 200
        await world.listed(runs[-1], state="success")
        _spoil(gateway.index_file)
        assert await _listed(world) != sorted(runs)

        begun = await world.http.post("/v1/index/rebuild")
        assert (begun.status_code, begun.json()["state"]) == (202, "running")
        writing = asyncio.create_task(write_runs(world, 20, runs))

        async def rebuilt() -> bool:
            assert (await world.http.get("/v1/runs")).status_code == 200
            told = (await world.http.get("/v1/index")).json()["rebuild"]
            assert told["state"] != "failed", told
            return bool(told["state"] == "done")

        await until(rebuilt)
        await writing
        for run in runs:  # the shards are indexed independently
            await world.listed(run, state="success")
        assert await _listed(world) == sorted(runs), "what was written meanwhile is there, what was erased is not"
        gateway.kill()
        gateway.start()
        assert await _listed(world) == sorted(runs)
        assert [file.name for file in gateway.index_file.parent.glob("index*.new*")] == []


async def _listed(world: World) -> list[str]:
    page = (await world.http.get("/v1/runs", params={"limit": 1000})).json()
    return sorted(one["id"] for one in page["runs"])


def _spoil(file: Path) -> None:
    """Takes runs out of the index, as a defect of an earlier version could have."""
    with contextlib.closing(sqlite3.connect(file, timeout=30)) as connection, connection:
        connection.execute("DELETE FROM runs WHERE rowid % 3 = 0")


async def test_a_gateway_that_is_killed_at_any_moment_lists_each_run_once(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with deployed(nats_server, tmp_path) as (gateway, world):
        runs: list[str] = []
        for _ in range(4):
            writing = asyncio.create_task(write_runs(world, 25, runs))
            await asyncio.to_thread(gateway.kill)
            await writing
            gateway.start()
        for run in runs:
            await world.listed(run, state="success")
        page = (await world.http.get("/v1/runs", params={"limit": 1000, "count": "true"})).json()
        assert sorted(one["id"] for one in page["runs"]) == sorted(runs)
        assert page["total"] == len(runs)


async def write_runs(world: World, count: int, written: list[str]) -> None:
    for _ in range(count):
        run = new_run()
        await world.finished_run(run)
        written.append(run)


async def test_a_killed_nats_server_costs_a_stream_nothing(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.start()
    async with deployed(server, tmp_path) as (gateway, world):
        run = new_run()
        scribe = world.scribe(run)
        marks = [await scribe.write(scribe.accepted())]
        seen: list[SseEvent] = []
        async with world.http.stream("GET", f"/v1/runs/{run}/events") as answer, asyncio.timeout(patience()):
            stream = sse_events(answer)
            seen.append(await anext(stream))
            for _ in range(2):
                server.kill()
                missing = await asyncio.to_thread(gateway.wait_for, 503)
                assert "NATS" in missing["missing"]
                began = asyncio.get_running_loop().time()
                refused = await world.http.post("/v1/runs", json={"agent": "boss", "task": "x"})
                assert (refused.status_code, refused.json()["code"]) == (503, "bus-unavailable")
                assert asyncio.get_running_loop().time() - began < 2
                server.start()
                await asyncio.to_thread(gateway.wait_for, 200)
                marks += [await world.write(scribe, CALLED) for _ in range(3)]
                seen += [await anext(stream) for _ in range(3)]
            marks.append(await world.write(scribe, FINISHED))
            seen += [one async for one in stream]
        assert [one.mark for one in seen] == [*marks, None]
        assert seen[-1].name == "end"
    server.stop()


def test_who_listens_beyond_this_machine_is_warned(nats_server: NatsServer, tmp_path: Path) -> None:
    for host, auth, warned in (
        ("0.0.0.0", "off", True),
        ("0.0.0.0", "keys", False),
        ("127.0.0.1", "", False),
    ):
        (folder := tmp_path / f"{host}{auth}").mkdir()
        gateway = GatewayProcess(nats_server.url, folder, CADRE_HOST=host, CADRE_AUTH=auth)
        try:
            assert ("docs/security.md" in gateway.log()) is warned
        finally:
            gateway.kill()
