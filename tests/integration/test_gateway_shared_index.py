"""Several gateways share an index in PostgreSQL: each writes, any may go, nothing is lost or doubled."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from cadre.journal import events as ev
from cadre.protocol.cards import AgentCard, Presence
from cadre.protocol.topology import call_id
from cadre.settings import child_environment
from harness.command import Commands
from harness.nats_server import NatsServer
from harness.patience import until
from harness.pgbouncer import MISSING as MISSING_POOLER
from harness.pgbouncer import PgBouncer, pgbouncer_program
from harness.postgres_server import MISSING, PostgresServer, postgres_programs
from integration.gateway_world import CALLED, FINISHED, GatewayProcess, World, new_run, sse_events
from integration.gateways_world import Gateways, assert_whole, deployed, listed_by, lists, write_runs

RUNS = 120


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip(MISSING)
    with PostgresServer(programs) as server:
        yield server


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_gateway_that_ends_leaves_nothing_unsaved(
    nats_server: NatsServer, tmp_path: Path, postgres: PostgresServer, how: signal.Signals
) -> None:
    async with deployed(nats_server, tmp_path, postgres) as (gateways, world):
        first = gateways.all[0]
        second = gateways.add()
        gateways.add()
        runs: list[str] = []
        await write_runs(world, 10, runs)
        open_run = world.scribe(new_run())
        await open_run.write(open_run.accepted())
        writing = asyncio.create_task(write_runs(world, RUNS, runs))
        await until(lambda: _some(second, 30))
        first.end(how)
        await writing
        await open_run.write(FINISHED)
        runs.append(open_run.run)
        await assert_whole(gateways, runs)
        first.start()
        await assert_whole(gateways, runs)


async def _some(gateway: GatewayProcess, least: int) -> bool:
    return len(await listed_by(gateway) or ()) >= least


async def test_a_gateway_that_stands_still_holds_up_no_other(
    nats_server: NatsServer, tmp_path: Path, postgres: PostgresServer
) -> None:
    async with deployed(nats_server, tmp_path, postgres) as (gateways, world):
        first, second = gateways.all[0], gateways.add()
        runs: list[str] = []
        await write_runs(world, 10, runs)
        await assert_whole(gateways, runs)
        first.pause()
        erased = await _written_by(world, second, runs)
        first.go_on()
        await assert_whole(gateways, runs, erased=1)
        assert (await world.http.get(f"/v1/runs/{erased}")).status_code == 404


async def _written_by(world: World, gateway: GatewayProcess, runs: list[str]) -> str:
    """Write runs and erase one that was written before; return that one."""
    await write_runs(world, 10, runs)
    await until(lambda: lists(gateway, set(runs)))
    erased = runs.pop(0)
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=60) as http:
        assert (await http.delete(f"/v1/runs/{erased}")).status_code == 200
    await until(lambda: lists(gateway, set(runs)))
    return erased


@pytest.mark.parametrize("asked", [1, 2])
async def test_a_rebuild_by_any_gateway_takes_the_place_of_what_is_wrong(
    nats_server: NatsServer, tmp_path: Path, postgres: PostgresServer, asked: int
) -> None:
    """Also when two are asked at once: the tables of one of them stand in the end, and no gateway is started again."""
    async with deployed(nats_server, tmp_path, postgres) as (gateways, world):
        first = gateways.all[0]
        runs: list[str] = []
        await write_runs(world, 20, runs)
        second = gateways.add()
        await assert_whole(gateways, runs)
        await gateways.rows("WITH gone AS (DELETE FROM runs RETURNING id) SELECT count(*) FROM gone")
        await gateways.rows("WITH gone AS (DELETE FROM trees RETURNING tree) SELECT count(*) FROM gone")
        assert await listed_by(first) == set()
        for one in (second, first)[:asked]:
            assert httpx2.post(f"{one.url}/v1/index/rebuild").status_code == 202
        await write_runs(world, 5, runs)
        for one in (second, first)[:asked]:
            await until(lambda one=one: _is_rebuilt(gateways, one))  # type: ignore[misc]
        await assert_whole(gateways, runs)
        states = [gateways.index(one)["rebuild"]["state"] for one in (second, first)[:asked]]  # type: ignore[index]
        assert "done" in states
        assert await gateways.rows("SELECT count(*) FROM pg_namespace WHERE nspname ~ '(_new|_old)$'") == [(0,)]


async def _is_rebuilt(gateways: Gateways, gateway: GatewayProcess) -> bool:
    answer = httpx2.get(f"{gateway.url}/v1/index", timeout=30)
    if answer.status_code == 503:
        return False  # another gateway's tables took the place of those that it reads
    return bool(answer.json()["rebuild"]["ended_at"])


async def test_gateways_work_through_a_pooler_of_transactions(
    nats_server: NatsServer, tmp_path: Path, postgres: PostgresServer
) -> None:
    program = pgbouncer_program()
    if program is None:
        pytest.skip(MISSING_POOLER)
    with PgBouncer(program, postgres) as pooler:
        async with deployed(nats_server, tmp_path, postgres, pooler.url) as (gateways, world):
            first, second = gateways.all[0], gateways.add()
            runs: list[str] = []
            await write_runs(world, 20, runs)
            await assert_whole(gateways, runs)
            first.kill()
            await write_runs(world, 20, runs)
            first.start()
            erased = await _written_by(world, second, runs)
            assert httpx2.post(f"{second.url}/v1/index/rebuild").status_code == 202
            await until(lambda: _is_rebuilt(gateways, second))
            await assert_whole(gateways, runs, erased=1)
            assert (await world.http.get(f"/v1/runs/{erased}")).status_code == 404
            assert "fails" not in first.log() + second.log()


async def test_tables_that_are_dropped_are_made_again(
    nats_server: NatsServer, tmp_path: Path, postgres: PostgresServer
) -> None:
    async with deployed(nats_server, tmp_path, postgres) as (gateways, world):
        gateways.add()
        runs: list[str] = []
        await write_runs(world, 5, runs)
        await assert_whole(gateways, runs)
        await gateways.drop()
        await write_runs(world, 5, runs)
        await assert_whole(gateways, runs)


async def test_without_the_database_runs_go_on_and_lists_come_back(
    nats_server: NatsServer, tmp_path: Path, own_postgres: PostgresServer
) -> None:
    async with deployed(nats_server, tmp_path, own_postgres) as (gateways, world):
        first, second = gateways.all[0], gateways.add()
        await world.announce("boss")
        runs: list[str] = []
        await write_runs(world, 5, runs)
        await assert_whole(gateways, runs)
        own_postgres.crash()
        for one in (first, second):
            await until(lambda one=one: _lacks(one, "PostgreSQL"))  # type: ignore[misc]
            answer = httpx2.get(f"{one.url}/v1/runs", timeout=60)
            assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (
                503,
                "index-unavailable",
            )
            assert "CADRE_INDEX_URL" in answer.json()["detail"]
        started = await world.http.post("/v1/runs", json={"agent": "boss", "task": "Go on."})
        assert started.status_code == 202, started.text
        runs += [started.json()["id"], await _begins_and_shows_runs(world, runs[0])]
        await write_runs(world, 5, runs)
        own_postgres.start()
        await assert_whole(gateways, runs)
        assert not await _lacks(first, "PostgreSQL")


async def test_a_database_that_was_set_back_is_gone_on_with_from_its_place(
    nats_server: NatsServer, tmp_path: Path, own_postgres: PostgresServer
) -> None:
    """Its list would show runs that were erased, and lack what began since."""
    async with deployed(nats_server, tmp_path, own_postgres) as (gateways, world):
        gateway, _ = gateways.all[0], gateways.add()
        await world.announce("boss")
        runs: list[str] = []
        await write_runs(world, 3, runs)
        erased = await world.ended_run()
        await assert_whole(gateways, [*runs, erased])
        own_postgres.keep()
        own_postgres.start()
        for one in gateways.all:
            await asyncio.to_thread(one.wait_until_whole)
        assert (await world.http.delete(f"/v1/runs/{erased}")).status_code == 200
        await write_runs(world, 3, runs)
        await assert_whole(gateways, runs, erased=1)
        own_postgres.set_back()
        own_postgres.start()
        await assert_whole(gateways, runs, erased=1)
        runs.append(await _begins_and_shows_runs(world, runs[-1]))
        gateway.kill()
        gateway.start()
        await assert_whole(gateways, runs, erased=1)


async def _lacks(gateway: GatewayProcess, what: str) -> bool:
    """Return whether a gateway that takes requests says that its index lacks it."""
    answer = httpx2.get(f"{gateway.url}/readyz", timeout=60)
    assert answer.status_code == 200, answer.text
    return what in answer.json().get("index", "")


async def test_a_gateway_that_starts_without_the_database_works_and_is_whole_when_it_comes(
    nats_server: NatsServer, tmp_path: Path, own_postgres: PostgresServer
) -> None:
    async with deployed(nats_server, tmp_path, own_postgres) as (gateways, world):
        [gateway] = gateways.all
        await world.announce("boss")
        runs: list[str] = []
        await write_runs(world, 3, runs)
        erased = await world.ended_run()
        assert (await world.http.delete(f"/v1/runs/{erased}")).status_code == 200
        await assert_whole(gateways, runs, erased=1)
        gateway.kill()
        own_postgres.crash()
        await write_runs(world, 3, runs)  # no one reads them
        gateway.launch()
        told = await asyncio.to_thread(gateway.wait_for, 200)
        assert "PostgreSQL" in told["index"]
        runs.append(await _works_without_its_index(world, runs[0], erased))
        runs.append(await _shows_what_waits_for_people(world, gateway, tmp_path))
        scribe = world.scribe(new_run())
        first = await scribe.write(scribe.accepted())
        async with world.http.stream("GET", f"/v1/runs/{scribe.run}/events") as answer:
            stream = sse_events(answer)
            assert (await anext(stream)).mark == first
            second = await scribe.write(CALLED)
            assert (await anext(stream)).mark == second, "told as it happens"
            own_postgres.start()
            await asyncio.to_thread(gateway.wait_until_whole)
            assert await listed_by(gateway) == set(runs)
            third = await scribe.write(FINISHED)
            assert [one.mark async for one in stream] == [third, None], "each once"
        runs.append(scribe.run)
        await assert_whole(gateways, runs, erased=1)
        assert not await _lacks(gateway, "PostgreSQL")
        gateways.add()
        await assert_whole(gateways, runs, erased=1)


async def _works_without_its_index(world: World, kept: str, erased: str) -> str:
    """The run that it queues."""
    for method, path in [
        *(("GET", path) for path in ("/v1/runs", "/v1/approvals", "/v1/load", "/v1/index")),
        ("DELETE", f"/v1/runs/{kept}"),
        ("POST", "/v1/index/rebuild"),
    ]:
        answer = await world.http.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (503, "index-unavailable"), path
        assert "CADRE_INDEX_URL" in answer.json()["detail"]
    counted = (await world.http.get("/v1/stats")).json()["total"]["runs"]
    assert counted == 6, "what was used is counted without the index"
    assert (await world.http.get(f"/v1/runs/{erased}")).status_code == 404
    queued = await _begins_and_shows_runs(world, kept)
    await _rolls_out_without_its_index(world)
    return queued


async def _begins_and_shows_runs(world: World, kept: str) -> str:
    """The run that it queues."""
    assert (await world.http.get(f"/v1/runs/{kept}")).json()["state"] == "success"
    begun = [
        (await world.http.post("/v1/runs", json={"agent": "boss", "task": "Go."}, headers=key)).json()["id"]
        for key in [{"Idempotency-Key": "once"}] * 2
    ]
    assert begun[0] == begun[1], "the same request is the same run"
    assert (await world.http.post(f"/v1/runs/{begun[0]}/cancel")).status_code == 202
    return str(begun[0])


async def _shows_what_waits_for_people(world: World, gateway: GatewayProcess, folder: Path) -> str:
    scribe = world.scribe(new_run())
    await scribe.write(scribe.accepted(), CALLED)
    call = call_id(scribe.run, 1, 0)
    await scribe.write(
        ev.ModelAnswered(purpose="act", step=1, attempt=1, content=""),
        ev.ApprovalRequested(call=call, name="pay", kind="tool", arguments={}, reason="always"),
    )
    cadre = Commands(folder, child_environment(CADRE_GATEWAY_URL=gateway.url, NO_COLOR="1"))
    shown = await asyncio.to_thread(cadre, "show", scribe.run)
    assert shown.returncode == 0, shown.stderr
    assert "1 to approve" in shown.stdout
    assert "PostgreSQL" in shown.stderr
    await scribe.write(FINISHED)
    return scribe.run


async def _rolls_out_without_its_index(world: World) -> None:
    """A revision that is not good must not get runs until a database is back."""
    old, new = revisions = ("aaaa00000000", "bbbb00000000")
    card = AgentCard(name="clerk", description="Notes.")
    one = Presence(instance=old, host="h", pid=1, started_at=1.0, agent=card)
    live = [replace(one, instance=revision, revision=revision) for revision in revisions]
    await world.registry.announce(live, part="clerk")

    async def changed(**change: object) -> dict[str, object]:
        answer = await world.http.post("/v1/agents/clerk/rollout", json=change)
        assert answer.status_code == 200, answer.text
        return {one["revision"]: one["weight"] for one in answer.json()["revisions"]}

    async def both_live() -> bool:
        found = (await world.http.get("/v1/agents")).json()["agents"]
        return any(len(one["replicas"]) == 2 for one in found)

    await until(both_live)
    assert await changed(to=new, weight=40, rest=old) == {old: 60, new: 40}
    assert await changed(to=old, weight=100) == {old: 100, new: 0}
    [listed] = [one for one in (await world.http.get("/v1/agents")).json()["agents"] if one["name"] == "clerk"]
    assert "`cadre index show`" in listed["rollout"][0]
    shown = (await world.http.get("/v1/agents/clerk/rollout")).json()["revisions"]
    assert {one["revision"]: one["open_runs"] for one in shown} == {old: None, new: None}
    assert await changed(to=new, weight=100) == {old: 0, new: 100}


async def test_a_second_gateway_that_starts_without_the_database_joins_the_first(
    nats_server: NatsServer, tmp_path: Path, own_postgres: PostgresServer
) -> None:
    async with deployed(nats_server, tmp_path, own_postgres) as (gateways, world):
        first, second = gateways.all[0], gateways.add()
        runs: list[str] = []
        await write_runs(world, 3, runs)
        await assert_whole(gateways, runs)
        second.kill()
        own_postgres.crash()
        second.launch()
        await asyncio.to_thread(second.wait_for, 200)
        await write_runs(world, 3, runs)
        own_postgres.start()
        for one in (first, second):
            await asyncio.to_thread(one.wait_until_whole)
        await assert_whole(gateways, runs)
        first.kill()
        await write_runs(world, 3, runs)
        await assert_whole(gateways, runs)
