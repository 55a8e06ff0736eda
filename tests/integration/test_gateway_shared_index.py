"""Several gateways share an index in PostgreSQL: one writes, another takes its place, nothing is lost or doubled."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx2
import psycopg
import pytest
from msgspec.structs import replace

from cadre.journal import events as ev
from cadre.protocol.cards import AgentCard, Presence
from cadre.protocol.topology import call_id
from cadre.settings import child_environment
from harness.command import Commands
from harness.nats_server import NatsServer
from harness.patience import until
from harness.postgres_server import MISSING, PostgresServer, postgres_programs
from integration.gateway_world import CALLED, FINISHED, GatewayProcess, World, entered, new_run, sse_events

RUNS = 120


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip(MISSING)
    with PostgresServer(programs) as server:
        yield server


class Gateways:
    """Gateways of one deployment with one index."""

    def __init__(self, nats_url: str, folder: Path, postgres: PostgresServer) -> None:
        self._nats_url, self._folder = nats_url, folder
        self._environment = {"CADRE_INDEX_URL": postgres.url, "CADRE_INDEX_SCHEMA": f"t{uuid4().hex[:8]}"}
        self._postgres = postgres
        self.all = [GatewayProcess(nats_url, folder, None, **self._environment)]

    def add(self) -> GatewayProcess:
        self.all.append(
            GatewayProcess(self._nats_url, self._folder, self.all[0].settings, **self._environment)
        )
        return self.all[-1]

    def writers(self) -> list[GatewayProcess]:
        """Those alive that say that no other one writes."""
        return [one for one in self.all if one.is_alive and self.index(one)["writer"] == ""]

    def index(self, gateway: GatewayProcess) -> dict[str, object]:
        answer = httpx2.get(f"{gateway.url}/v1/index", timeout=30)
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    async def rows(self, statement: str) -> list[tuple[object, ...]]:
        """What the database has, read beside the gateways."""
        schema = self._environment["CADRE_INDEX_SCHEMA"]
        async with await psycopg.AsyncConnection.connect(self._postgres.url) as connection:
            found = await connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname ~ %s", (f"^{schema}_[0-9_]+$",)
            )
            [(name,)] = await found.fetchall()
            await connection.execute("SELECT set_config('search_path', %s, false)", (name,))
            return await (await connection.execute(statement.encode())).fetchall()


@asynccontextmanager
async def deployed(
    nats_server: NatsServer, folder: Path, postgres: PostgresServer
) -> AsyncIterator[tuple[Gateways, World]]:
    gateways = Gateways(nats_server.url, folder, postgres)
    try:
        async with entered(gateways.all[0]) as world:
            yield gateways, world
    finally:
        for one in gateways.all:
            one.kill()


async def listed_by(gateway: GatewayProcess) -> set[str]:
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=60) as http:
        answer = await http.get("/v1/runs", params={"limit": 500})
        assert answer.status_code == 200, answer.text
        return {one["id"] for one in answer.json()["runs"] if one["state"] in ("queued", "success")}


async def write_runs(world: World, count: int, runs: list[str]) -> None:
    for _ in range(count):
        runs.append(new_run())
        await world.finished_run(runs[-1])


async def assert_whole(gateways: Gateways, runs: list[str], erased: int = 0) -> None:
    """Each gateway lists all of them, and the database has each row once."""
    for one in gateways.all:
        if one.is_alive:
            await until(lambda one=one: _lists(one, set(runs)))  # type: ignore[misc]
    assert await gateways.rows("SELECT count(*), count(DISTINCT id) FROM runs") == [(len(runs), len(runs))]
    assert await gateways.rows("SELECT count(*) FROM run_texts") == [(len(runs),)]
    assert await gateways.rows("SELECT count(*) FROM trees") == [(len(runs) + erased,)]


async def _lists(gateway: GatewayProcess, runs: set[str]) -> bool:
    return await listed_by(gateway) == runs


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_another_gateway_takes_the_place_of_the_one_that_writes(
    nats_server: NatsServer, tmp_path: Path, postgres: PostgresServer, how: signal.Signals
) -> None:
    async with deployed(nats_server, tmp_path, postgres) as (gateways, world):
        first = gateways.all[0]
        second = gateways.add()
        third = gateways.add()
        assert gateways.writers() == [first]
        assert httpx2.post(f"{second.url}/v1/index/rebuild").json()["type"].endswith("not-the-writer")
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
        assert len(gateways.writers()) == 1
        first.start()
        await assert_whole(gateways, runs)
        assert {second, third} >= set(gateways.writers())


async def _some(gateway: GatewayProcess, least: int) -> bool:
    return len(await listed_by(gateway)) >= least


async def test_a_gateway_that_stands_still_loses_its_place_and_joins_again(
    nats_server: NatsServer, tmp_path: Path, postgres: PostgresServer
) -> None:
    async with deployed(nats_server, tmp_path, postgres) as (gateways, world):
        first, second = gateways.all[0], gateways.add()
        runs: list[str] = []
        await write_runs(world, 10, runs)
        await assert_whole(gateways, runs)
        first.pause()
        await write_runs(world, 10, runs)
        await until(lambda: _lists(second, set(runs)))
        first.go_on()
        await assert_whole(gateways, runs)

        async def second_writes() -> bool:  # the first one learns of it when it looks, twice a second
            return gateways.writers() == [second]

        await until(second_writes)


async def test_a_rebuild_takes_the_place_of_what_is_wrong(
    nats_server: NatsServer, tmp_path: Path, postgres: PostgresServer
) -> None:
    async with deployed(nats_server, tmp_path, postgres) as (gateways, world):
        first = gateways.all[0]
        runs: list[str] = []
        await write_runs(world, 20, runs)
        second = gateways.add()
        await assert_whole(gateways, runs)
        await gateways.rows("WITH gone AS (DELETE FROM runs RETURNING id) SELECT count(*) FROM gone")
        await gateways.rows("WITH gone AS (DELETE FROM trees RETURNING tree) SELECT count(*) FROM gone")
        assert await listed_by(second) == set()
        assert httpx2.post(f"{first.url}/v1/index/rebuild").status_code == 202
        await write_runs(world, 5, runs)
        await assert_whole(gateways, runs)
        assert gateways.index(first)["rebuild"]["state"] == "done"  # type: ignore[index]
        assert await gateways.rows("SELECT count(*) FROM pg_namespace WHERE nspname LIKE '%\\_new'") == [(0,)]


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
        assert len(gateways.writers()) == 1
        assert not await _lacks(first, "PostgreSQL")


async def test_a_database_that_was_set_back_is_told_and_nothing_is_listed_by_it(
    nats_server: NatsServer, tmp_path: Path, own_postgres: PostgresServer
) -> None:
    """Its list would show runs that were erased, and lack what began since: for as long as the gateway lives."""
    async with deployed(nats_server, tmp_path, own_postgres) as (gateways, world):
        [gateway] = gateways.all
        await world.announce("boss")
        runs: list[str] = []
        await write_runs(world, 3, runs)
        erased = await world.ended_run()
        await assert_whole(gateways, [*runs, erased])
        own_postgres.keep()
        own_postgres.start()
        await asyncio.to_thread(gateway.wait_until_whole)
        assert (await world.http.delete(f"/v1/runs/{erased}")).status_code == 200
        await write_runs(world, 3, runs)
        await assert_whole(gateways, runs, erased=1)
        own_postgres.set_back()
        own_postgres.start()
        await until(lambda: _lacks(gateway, "set back"))
        answer = await world.http.get("/v1/runs")
        assert (answer.status_code, answer.json()["code"]) == (503, "index-unavailable"), answer.text
        assert "start the gateways again" in answer.json()["detail"]
        assert (await world.http.get(f"/v1/runs/{erased}")).status_code == 404
        runs.append(await _begins_and_shows_runs(world, runs[-1]))
        gateway.kill()
        gateway.start()
        await assert_whole(gateways, runs, erased=1)


async def _lacks(gateway: GatewayProcess, what: str) -> bool:
    """Whether a gateway that takes requests says that its index lacks it."""
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
        await write_runs(world, 3, runs)  # nobody reads them
        gateway.launch()
        told = await asyncio.to_thread(gateway.wait_for, 200)
        assert "the index in PostgreSQL" in told["index"]
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
        assert gateways.writers() == [gateway]
        assert not await _lacks(gateway, "PostgreSQL")
        second_gateway = gateways.add()
        await assert_whole(gateways, runs, erased=1)
        assert gateways.writers() == [gateway]
        assert second_gateway.is_alive


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
    assert shown.stderr.startswith("cadre: the calls that wait are not listed: the index in PostgreSQL")
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
    [listed] = [
        one for one in (await world.http.get("/v1/agents")).json()["agents"] if one["name"] == "clerk"
    ]
    assert "is not known while the gateway has no index" in listed["rollout"][0]
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
        assert len(gateways.writers()) == 1
        gateways.writers()[0].kill()
        await write_runs(world, 3, runs)
        await assert_whole(gateways, runs)
