"""Triggers on a real server: messages on the bus and signed webhooks start runs, one for each id."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from cadre.adapters.nats.streams import jetstream
from cadre.automation.notice import signature
from harness.nats_server import NatsServer
from harness.patience import until
from integration.gateway_world import GatewayProcess, World, entered
from integration.test_schedules import tasks_of

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
async def hooked(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[World]:
    """A deployment whose gateway knows a secret."""
    gateway = GatewayProcess(nats_server.url, tmp_path, CADRE_SECRET_SHOP=SECRET)
    try:
        async with entered(gateway) as one:
            yield one
    finally:
        gateway.kill()


async def put(world: World, name: str, **spec: Any) -> None:
    answer = await world.http.put(f"/v1/triggers/{name}", json={"agent": name, **spec})
    assert answer.status_code == 200, answer.text


async def tasks(world: World, agent: str, count: int) -> list[str]:
    async def ask() -> list[str]:
        found = [task.task for task in await tasks_of(world, agent)]
        return found if len(found) >= count else []

    return await until(ask)


async def test_messages_start_runs_once_for_each_id(hooked: World) -> None:
    await put(hooked, "orders", subject="orders.*", task="{{ payload.item }} ({{ subject }})")
    await put(hooked, "audit", subject=">", task="{{ id }}")
    for item, message in (("apples", "m1"), ("apples", "m1"), ("pears", "m2")):
        data = b'{"item": "%s"}' % item.encode()
        subject = f"{hooked.topology.events_prefix}orders.new"
        await jetstream.append(hooked.nc, subject, data, headers={jetstream.MESSAGE_ID: message})
    await jetstream.append(hooked.nc, f"{hooked.topology.events_prefix}stock", b"low")
    assert sorted(await tasks(hooked, "orders", 2)) == ["apples (orders.new)", "pears (orders.new)"]
    seen = await tasks(hooked, "audit", 3)
    assert {"m1", "m2"} < set(seen)
    assert len(seen) == 3

    async def emptied() -> bool:
        held = await jetstream.last(hooked.nc, hooked.topology.automation_stream, f"{hooked.topology.events_prefix}>")
        return held is None

    assert await until(emptied), "what is handled is removed"


async def test_a_message_that_fits_no_template_is_a_dead_letter_and_can_be_tried_again(hooked: World) -> None:
    await put(hooked, "orders", subject="orders.*", task="{{ payload.item }}")
    await put(hooked, "beside", subject="orders.*", task="beside {{ payload.thing }}")
    await jetstream.append(hooked.nc, f"{hooked.topology.events_prefix}orders.new", b'{"thing": "apples"}')

    async def letters() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await hooked.http.get("/v1/dead-letters")).json()["dead_letters"]
        return found

    (letter,) = await until(letters)
    assert "trigger orders: task: 'dict object' has no attribute 'item'" in letter["reason"]
    await put(hooked, "orders", subject="orders.*", task="{{ payload.thing }}")
    await asyncio.sleep(1.1)
    retried = await hooked.http.post(f"/v1/dead-letters/{letter['id']}/retry")
    assert retried.status_code == 200, retried.text
    assert await tasks(hooked, "orders", 1) == ["apples"]
    assert await tasks(hooked, "beside", 1) == ["beside apples"], "what it had started is not started again"


async def test_a_signed_webhook_starts_one_run(hooked: World) -> None:
    await put(hooked, "shop", webhook={"secret_env": "CADRE_SECRET_SHOP"}, task="{{ payload.item }}")
    body, now = b'{"item": "apples"}', int(time.time())

    async def post(message: str, at: int, secret: str = SECRET) -> httpx2.Response:
        headers = {
            "webhook-id": message,
            "webhook-timestamp": str(at),
            "webhook-signature": signature(secret, message, at, body),
        }
        return await hooked.http.post("/v1/triggers/shop", content=body, headers=headers)

    first, again = await post("m1", now), await post("m1", now)
    assert first.status_code == 202, first.text
    assert first.json() == again.json()
    await put(hooked, "shop", webhook={"secret_env": "CADRE_SECRET_SHOP"}, task="{{ payload.item }}!")
    assert (await post("m1", now)).json() == first.json(), "an edit forgets no message"
    assert await tasks(hooked, "shop", 1) == ["apples"]
    for answer in (await post("m2", now, "other"), await post("m3", now - 400)):
        assert (answer.status_code, answer.json()["code"]) == (401, "invalid-signature")
    unsigned = await hooked.http.post("/v1/triggers/shop", content=body)
    assert unsigned.status_code == 401
    assert (await hooked.http.post("/v1/triggers/none", content=body)).json()["code"] == "unknown-trigger"
    await put(hooked, "mute", webhook={"secret_env": "CADRE_SECRET_NOT_SET"}, task="x")
    assert (await hooked.http.post("/v1/triggers/mute", content=body)).json()["code"] == "no-secret"
    assert [one["name"] for one in (await hooked.http.get("/v1/triggers")).json()["triggers"]] == [
        "mute",
        "shop",
    ]
    assert (await hooked.http.delete("/v1/triggers/shop")).status_code == 204
    assert (await hooked.http.get("/v1/triggers/shop")).status_code == 404
    assert len(await tasks_of(hooked, "shop")) == 1
    await put(hooked, "shop", webhook={"secret_env": "CADRE_SECRET_SHOP"}, task="{{ payload.item }}")
    other = await post("m1", now)
    assert other.json() != first.json(), "no run's id follows from the trigger's name and the message alone"


async def test_a_message_has_a_purchase_made_as_the_shipped_team_says(hooked: World) -> None:
    file = Path(__file__).parents[2] / "teams" / "purchases" / "automations.yaml"
    (trigger,) = [one for one in yaml.safe_load_all(file.read_text()) if one["kind"] == "Trigger"]
    await put(hooked, trigger["metadata"]["name"], **trigger["spec"])
    subject = f"{hooked.topology.events_prefix}purchases.requested"
    await jetstream.append(hooked.nc, subject, b'{"number": "P-2"}')
    assert await tasks(hooked, "buyer", 1) == ["Purchase P-2."]
