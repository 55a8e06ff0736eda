"""Notices on a real server: signed webhooks that are tried again, given up, and not lost when a gateway dies."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from cadre.automation.notice import verify
from harness.nats_server import NatsServer
from harness.patience import until
from integration.gateway_world import FINISHED, GatewayProcess, World, entered, new_run

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver:
    """Takes webhooks, checks their signatures, and answers what it is asked to."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.answers: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                names = ("webhook-id", "webhook-timestamp", "webhook-signature")
                message, timestamp, signatures = (self.headers[name] for name in names)
                if message:  # pushes of A2A are not signed
                    verify(SECRET, message, timestamp, signatures, data, now=time.time())
                status = outer.answers.pop(0) if outer.answers else 204
                if status == 204:
                    outer.taken.append(json.loads(data))
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


@pytest.fixture
async def deployed(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[tuple[GatewayProcess, World]]:
    gateway = GatewayProcess(nats_server.url, tmp_path, CADRE_SECRET_DESK=SECRET, CADRE_NOTICE_PRIVATE="127.0.0.0/8")
    try:
        async with entered(gateway) as world:
            yield gateway, world
    finally:
        gateway.kill()


async def put(world: World, url: str, **spec: Any) -> None:
    body = {"url": url, "secret_env": "CADRE_SECRET_DESK", **spec}
    answer = await world.http.put("/v1/notices/desk", json=body)
    assert answer.status_code == 200, answer.text
    topology = world.topology

    async def followed() -> bool:
        found = [await world.nc.jetstream().consumers_info(topology.stream(shard)) for shard in range(topology.shards)]
        return all(any(one.name == topology.notices_consumer() for one in shard) for shard in found)

    assert await until(followed)


async def ids(receiver: Receiver, count: int) -> list[str]:
    async def ask() -> list[str]:
        return [one["id"] for one in receiver.taken] if len(receiver.taken) >= count else []

    return await until(ask)


async def test_the_end_of_a_run_is_told_and_told_again_until_it_is_taken(
    deployed: tuple[GatewayProcess, World], receiver: Receiver
) -> None:
    gateway, world = deployed
    await put(world, receiver.url)
    receiver.answers = [500]
    run, other = new_run(), new_run()
    await world.finished_run(run)
    await until(lambda: _is(not receiver.answers))
    gateway.kill()
    await world.finished_run(other)
    await asyncio.to_thread(gateway.start)
    assert sorted(set(await ids(receiver, 2))) == sorted([f"{run}:finished", f"{other}:finished"])
    told = next(one for one in receiver.taken if one["subject"] == run)
    assert (told["type"], told["data"]["state"], told["data"]["agent"]) == (
        "dev.cadre.run.finished",
        "success",
        "boss",
    )


async def test_what_is_never_taken_is_a_dead_letter(deployed: tuple[GatewayProcess, World], receiver: Receiver) -> None:
    _, world = deployed
    await put(world, receiver.url, attempts=1)
    receiver.answers = [404]
    run = new_run()
    await world.finished_run(run)

    async def letters() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await world.http.get("/v1/dead-letters")).json()["dead_letters"]
        return found

    (letter,) = await until(letters)
    assert "notice desk: not taken in 1 tries, at last: the receiver answered 404" in letter["reason"]
    assert (await world.http.post(f"/v1/dead-letters/{letter['id']}/retry")).status_code == 200
    assert await ids(receiver, 1) == [f"{run}:finished"]


async def _is(value: bool) -> bool:
    return value


async def test_a_task_is_told_to_no_address_whose_owners_key_was_revoked(
    nats_server: NatsServer, tmp_path: Path, receiver: Receiver
) -> None:
    keys = {"CADRE_AUTH": "keys", "CADRE_ADMIN_KEY": "a" * 64, "CADRE_NOTICE_PRIVATE": "127.0.0.0/8"}
    gateway = GatewayProcess(nats_server.url, tmp_path, None, **keys)
    elsewhere = Receiver()
    try:
        async with entered(gateway) as world:
            world.http.headers["Authorization"] = f"Bearer {keys['CADRE_ADMIN_KEY']}"
            await world.announce("boss")
            begun = await world.http.post("/v1/runs", json={"agent": "boss", "task": "x"})
            run = begun.json()["id"]
            scribe = world.scribe(run)
            await scribe.write(scribe.accepted())
            made = (await world.http.post("/v1/keys", json={"name": "x", "roles": ["operator"]})).json()
            pushes = f"/a2a/boss/tasks/{run}/pushNotificationConfigs"
            theirs = {"Authorization": f"Bearer {made['token']}"}
            for url, headers in ((elsewhere.url, theirs), (receiver.url, {})):
                answer = await world.http.post(pushes, json={"url": url}, headers=headers)
                assert answer.status_code == 200, answer.text
            assert (await world.http.delete(f"/v1/keys/{made['id']}")).status_code == 200
            await scribe.write(FINISHED)
            assert await until(lambda: _is(bool(receiver.taken)))

            async def given_up() -> list[str]:
                found = (await world.http.get("/v1/dead-letters")).json()["dead_letters"]
                return [one["reason"] for one in found]

            (reason,) = await until(given_up)
            assert run in reason
            assert elsewhere.taken == []
    finally:
        elsewhere.close()
        gateway.kill()
