"""Test the bounds on requests: heads and bodies that never arrive, countless connections, large bodies, wrong keys."""

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.nats_server import NatsServer
from harness.patience import patience, until
from integration.gateway_world import GatewayProcess, World, entered, new_run
from integration.test_access import ADMIN_KEY

MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def gateway(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    one = GatewayProcess(
        nats_server.url,
        tmp_path_factory.mktemp("gateway"),
        CADRE_HTTP_HEADER_SECONDS="1",
        CADRE_HTTP_BODY_SECONDS="2",
        CADRE_HTTP_PEER_CONNECTIONS="30",
        CADRE_HTTP_BODY_BYTES=str(8 * MEBIBYTE),
    )
    yield one
    one.kill()


@asynccontextmanager
async def connection(world: World) -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
    where = urlsplit(str(world.http.base_url))
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answered(reader: StreamReader) -> tuple[int, dict[str, Any]]:
    """The status and the problem that end the connection."""
    async with asyncio.timeout(patience()):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head.split()[1]), json.loads(body)


HEAD = b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"


@pytest.mark.parametrize(
    ("sent", "what"), [(b"", "head"), (HEAD, "head"), (HEAD + b"\r\n", "body"), (HEAD + b'\r\n{"ta', "body")]
)
async def test_what_does_not_come_is_not_waited_for(world: World, sent: bytes, what: str) -> None:
    async with connection(world) as (reader, writer):
        writer.write(sent)
        status, problem = await answered(reader)
        assert (status, problem["code"]) == (408, "request-timeout")
        assert what in problem["detail"]


async def test_a_dripping_head_is_not_waited_for_either(world: World) -> None:
    async with connection(world) as (reader, writer):
        writer.write(HEAD)
        answer = asyncio.create_task(answered(reader))

        async def drip() -> bool:
            writer.write(b"X")
            await asyncio.sleep(0.05)
            return answer.done()

        await until(drip)
        assert (await answer)[0] == 408


async def test_a_slow_body_that_comes_is_taken(world: World) -> None:
    body = json.dumps({"agent": "boss", "task": "Do it." + " " * 12_000}).encode()
    async with connection(world) as (reader, writer):
        writer.write(b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 1_000):
            writer.write(body[start : start + 1_000])
            await asyncio.sleep(0.2)
        async with asyncio.timeout(patience()):
            assert b"202 Accepted" in await reader.readline()


async def test_a_stream_of_events_and_an_answer_that_takes_its_time_are_not_cut(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted())
    await world.listed(run)
    async with connection(world) as (reader, writer):
        writer.write(b"GET /v1/runs/%s/events HTTP/1.1\r\nHost: x\r\n\r\n" % run.encode())
        async with asyncio.timeout(patience()):
            await reader.readuntil(b"run.accepted")
            # Longer than a head or a body may take.
            await asyncio.sleep(2.5)
            await world.finished_run(new_run())
            await scribe.write(scribe.accepted())
            await reader.readuntil(b"run.accepted")


async def test_one_peer_has_so_many_connections(world: World) -> None:
    open_ones = [connection(world) for _ in range(40)]
    pairs = [await one.__aenter__() for one in open_ones]
    answers = [await answered(reader) for reader, _ in pairs]
    for one in open_ones:
        await one.__aexit__(None, None, None)
    statuses = [status for status, _ in answers]
    assert 9 <= statuses.count(503) <= 12
    assert statuses.count(408) == 40 - statuses.count(503)
    refused = next(problem for status, problem in answers if status == 503)
    assert refused["code"] == "busy"
    assert "CADRE_HTTP_PEER_CONNECTIONS" in refused["detail"]

    async def room() -> bool:
        return (await world.http.get("/v1/agents")).status_code == 200

    assert await until(room)


async def test_large_bodies_share_the_memory_that_there_is(world: World, gateway: GatewayProcess) -> None:
    before = gateway.peak_bytes()
    large = json.dumps({"agent": "boss", "task": "x", "files": {"a": "data:;base64," + "A" * (6 * MEBIBYTE)}})

    async def post(client: int) -> tuple[int, str]:
        answer = await world.http.post("/v1/runs", content=large.encode())
        if answer.status_code != 202:
            assert answer.headers["retry-after"]
            return answer.status_code, answer.json()["code"]
        return 202, ""

    outcomes = set(await asyncio.gather(*map(post, range(20))))
    assert outcomes <= {(202, ""), (503, "busy")}
    assert (503, "busy") in outcomes
    assert gateway.peak_bytes() - before < 20 * len(large)
    assert await post(0) == (202, ""), "what was held is given back"


async def test_a_task_that_would_hold_its_agent_up_is_refused(world: World) -> None:
    for wanted in ({"task": "x" * 3 * MEBIBYTE}, {"task": "x", "inputs": {"a": "y" * 3 * MEBIBYTE}}):
        answer = await world.http.post("/v1/runs", json={"agent": "boss", **wanted})
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
        assert "2097152" in answer.json()["detail"]


def test_bodies_that_never_end_are_given_up_by_their_readers(gateway: GatewayProcess) -> None:
    assert "Traceback" not in gateway.log()


async def test_an_address_tries_few_keys_whichever_route_it_asks(nats_server: NatsServer, tmp_path: Path) -> None:
    one = GatewayProcess(nats_server.url, tmp_path, CADRE_AUTH="keys", CADRE_ADMIN_KEY=ADMIN_KEY)
    headers = {"Authorization": "Bearer made-up"}
    try:
        async with entered(one) as world:
            for method, path in (("GET", "/v1/session"), ("POST", "/v1/session"), ("GET", "/v1/runs")):
                tries = [await world.http.request(method, path, headers=headers) for _ in range(100)]
                assert tries[-1].json()["code"] == "rate-limited", path
            counts = {"Authorization": f"Bearer {ADMIN_KEY}"}
            assert (await world.http.get("/v1/session", headers=counts)).status_code == 200
    finally:
        one.kill()
