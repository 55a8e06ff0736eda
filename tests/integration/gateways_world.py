"""Gateways of one deployment with one index in PostgreSQL, and what they list."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx2
import psycopg

from harness.nats_server import NatsServer
from harness.patience import until
from harness.postgres_server import PostgresServer
from integration.gateway_world import GatewayProcess, World, entered, new_run


class Gateways:
    """Gateways of one deployment with one index."""

    def __init__(self, nats_url: str, folder: Path, postgres: PostgresServer, url: str = "") -> None:
        """`url` leads to the server where its own does not."""
        self._nats_url, self._folder = nats_url, folder
        self._environment = {
            "CADRE_INDEX_URL": url or postgres.url,
            "CADRE_INDEX_SCHEMA": f"t{uuid4().hex[:8]}",
        }
        self._postgres = postgres
        self.all = [GatewayProcess(nats_url, folder, None, **self._environment)]

    def add(self) -> GatewayProcess:
        self.all.append(GatewayProcess(self._nats_url, self._folder, self.all[0].settings, **self._environment))
        return self.all[-1]

    def index(self, gateway: GatewayProcess) -> dict[str, object]:
        answer = httpx2.get(f"{gateway.url}/v1/index", timeout=30)
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    async def rows(self, statement: str) -> list[tuple[object, ...]]:
        """Return rows that are read without the gateways."""
        async with self._connected() as (connection, schema):
            await connection.execute("SELECT set_config('search_path', %s, false)", (schema,))
            return await (await connection.execute(statement.encode())).fetchall()

    async def drop(self) -> None:
        """As somebody does who takes the tables for another's."""
        async with self._connected() as (connection, schema):
            await connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[psycopg.AsyncConnection[tuple[object, ...]], str]]:
        schema = self._environment["CADRE_INDEX_SCHEMA"]
        async with await psycopg.AsyncConnection.connect(self._postgres.url) as connection:
            found = await connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname ~ %s", (f"^{schema}_[0-9_]+$",)
            )
            [(name,)] = await found.fetchall()
            yield connection, str(name)


@asynccontextmanager
async def deployed(
    nats_server: NatsServer, folder: Path, postgres: PostgresServer, url: str = ""
) -> AsyncIterator[tuple[Gateways, World]]:
    gateways = Gateways(nats_server.url, folder, postgres, url)
    try:
        async with entered(gateways.all[0]) as world:
            yield gateways, world
    finally:
        for one in gateways.all:
            one.kill()


async def listed_by(gateway: GatewayProcess) -> set[str] | None:
    """The runs of its list; None while it has none."""
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=60) as http:
        answer = await http.get("/v1/runs", params={"limit": 500})
        if answer.status_code == 503:
            assert answer.json()["code"] in ("index-building", "index-unavailable"), answer.text
            return None
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
            await until(lambda one=one: lists(one, set(runs)))  # type: ignore[misc]
    assert await gateways.rows("SELECT count(*), count(DISTINCT id) FROM runs") == [(len(runs), len(runs))]
    assert await gateways.rows("SELECT count(*) FROM run_texts") == [(len(runs),)]
    assert await gateways.rows("SELECT count(*) FROM trees") == [(len(runs) + erased,)]


async def lists(gateway: GatewayProcess, runs: set[str]) -> bool:
    return await listed_by(gateway) == runs
