"""A gateway whose index lacks most runs: it works, and lists come when the journals are read."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cadre.delivery.codec import encode
from harness.nats_server import NatsServer
from harness.patience import patience, until
from integration.gateway_world import CALLED, FINISHED, GatewayProcess, World, new_run, sse_events, with_boss
from unit.loop.build import ANSWER, SimulatedRun

RUNS = 1_500
_TEMPLATE = "0123456789abcdef0123456789abcdef"


@contextmanager
def held_up(gateway: GatewayProcess) -> Iterator[None]:
    """Nothing can be saved in the index inside the block, so that reading the journals stands still."""
    with contextlib.closing(sqlite3.connect(gateway.index_file, timeout=30, isolation_level=None)) as file:
        file.execute("BEGIN IMMEDIATE")
        yield
        file.execute("ROLLBACK")


async def write_kept_runs(world: World) -> None:
    """Of two entries each, fast; returns when the server has stored them: it answers a flush before."""
    before = await _stored(world)
    sim = SimulatedRun(run=_TEMPLATE).begin()
    sim.say(ANSWER)
    journal = [encode(entry) for entry in sim.journal()]
    for number in range(RUNS):
        run = f"{number:032x}"
        for data in journal:
            own = data.replace(_TEMPLATE.encode(), run.encode())
            await world.nc.publish(world.topology.journal(run, run), own)

    async def all_stored() -> bool:
        return await _stored(world) >= before + RUNS * len(journal)

    await until(all_stored)


async def _stored(world: World) -> int:
    """Return how many messages the streams of the journals have ever stored."""
    js = world.nc.jetstream()
    shards = range(world.topology.shards)
    return sum([(await js.stream_info(world.topology.stream(shard))).state.last_seq for shard in shards])


async def problem(world: World, method: str, path: str, **request: Any) -> tuple[int, str]:
    answer = await world.http.request(method, path, **request)
    assert "retry-after" in answer.headers, answer.text
    return answer.status_code, answer.json()["code"]


async def test_runs_begin_and_are_followed_while_the_journals_are_read(nats_server: NatsServer, tmp_path: Path) -> None:
    gateway = GatewayProcess(nats_server.url, tmp_path)
    try:
        async with with_boss(gateway) as world:
            kept = await world.ended_run()
            await world.listed(kept, state="success")
            erased = await world.ended_run()
            assert (await world.http.delete(f"/v1/runs/{erased}")).status_code == 200
            gateway.stop()
            await write_kept_runs(world)
            with held_up(gateway):
                gateway.launch()
                told = await asyncio.to_thread(gateway.wait_for, 200)
                assert told["index_code"] == "index-building", told
                await _works(world, kept, f"{1:032x}")

            async def is_whole() -> bool:
                return (await world.http.get("/v1/index")).json()["building"] is None

            await until(is_whole)
            page = (await world.http.get("/v1/runs", params={"count": "true", "limit": 1})).json()
            assert page["total"] == RUNS + 3, "each run once, also the one that began meanwhile, and the queued one"
            assert (await world.http.delete(f"/v1/runs/{1:032x}")).status_code == 200
    finally:
        gateway.kill()


async def _works(world: World, kept: str, unread: str) -> None:
    building = (await world.http.get("/v1/index")).json()["building"]
    assert 0 <= building["read"] < building["of"]
    for path in ("/v1/runs", "/v1/approvals", "/v1/load"):
        assert await problem(world, "GET", path) == (503, "index-building"), path
    assert await problem(world, "DELETE", f"/v1/runs/{kept}") == (503, "index-building")
    assert (await world.http.post("/v1/index/rebuild")).json()["code"] == "rebuilding"
    for run in (kept, unread):
        assert (await world.http.get(f"/v1/runs/{run}")).json()["state"] == "success"
    begun = [
        (await world.http.post("/v1/runs", json={"agent": "boss", "task": "Go."}, headers=key)).json()["id"]
        for key in [{"Idempotency-Key": "once"}] * 2
    ]
    assert begun[0] == begun[1], "the same request is the same run"
    run = new_run()
    scribe = world.scribe(run)
    first = await scribe.write(scribe.accepted())
    async with world.http.stream("GET", f"/v1/runs/{run}/events") as answer, asyncio.timeout(patience()):
        stream = sse_events(answer)
        assert (await anext(stream)).mark == first
        live = [await scribe.write(CALLED), await scribe.write(FINISHED)]
        assert [one.mark async for one in stream] == [*live, None]
    assert (await world.http.get("/v1/index")).json()["building"] is not None
