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


async def test_a_paused_trigger_starts_nothing(hooked: World) -> None:
    spec = {"subject": "orders", "webhook": {"secret_env": "CADRE_SECRET_SHOP"}, "task": "{{ payload.item }}"}
    await put(hooked, "shop", **spec, paused=True)
    subject, body, now = f"{hooked.topology.events_prefix}orders", b'{"item": "pears"}', int(time.time())
    headers = {
        "webhook-id": "m1",
        "webhook-timestamp": str(now),
        "webhook-signature": signature(SECRET, "m1", now, body),
    }
    answer = await hooked.http.post("/v1/triggers/shop", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (503, "trigger-paused")
    await jetstream.append(hooked.nc, subject, b'{"item": "apples"}')

    async def taken() -> bool:
        return await jetstream.last(hooked.nc, hooked.topology.automation_stream, subject) is None

    assert await until(taken)
    await put(hooked, "shop", **spec)
    assert (await hooked.http.post("/v1/triggers/shop", content=body, headers=headers)).status_code == 202
    assert await tasks(hooked, "shop", 1) == ["pears"]


async def test_the_runs_and_the_refusals_of_a_trigger_are_found_by_its_name(hooked: World) -> None:
    spec = {"subject": "orders", "webhook": {"secret_env": "CADRE_SECRET_SHOP"}, "task": "{{ payload.item }}"}
    await put(hooked, "shop", **spec, options={"labels": {"team": "sales"}})
    subject = f"{hooked.topology.events_prefix}orders"
    await jetstream.append(hooked.nc, subject, b'{"item": "apples"}', headers={jetstream.MESSAGE_ID: "m1"})
    await jetstream.append(hooked.nc, subject, b'{"thing": 1}', headers={jetstream.MESSAGE_ID: "m2"})
    assert await tasks(hooked, "shop", 1) == ["apples"]
    (task,) = await tasks_of(hooked, "shop")
    assert task.labels == {"team": "sales", "trigger": "shop"}

    async def listed() -> list[str]:
        query = {"label": ["trigger=shop", "team=sales"]}
        return [one["id"] for one in (await hooked.http.get("/v1/runs", params=query)).json()["runs"]]

    assert await until(listed) == [task.run]
    refused = await hooked.http.post("/v1/triggers/shop", content=b"{}", headers={"webhook-id": "m3"})
    assert refused.status_code == 401

    async def refusals() -> list[tuple[str, str, str]]:
        view = (await hooked.http.get("/v1/triggers/shop")).json()
        assert view["bus_subject"] == subject
        found = sorted((one["id"], one["subject"], one["code"]) for one in view.get("refusals", []))
        return found if len(found) == 2 else []

    assert await until(refusals) == [("m2", "orders", "invalid-request"), ("m3", "", "invalid-signature")]


async def test_a_trigger_is_tried_without_a_signature_and_with_the_rights_of_the_caller(hooked: World) -> None:
    await put(hooked, "shop", subject="orders.*", task="{{ payload.item }} {{ subject }}")
    query = {"subject": "orders.new"}
    tried = await hooked.http.post("/v1/triggers/shop/try", params=query, content=b'{"item": 9007199254740993}')
    assert tried.json() == {"task": "9007199254740993 orders.new", "run": None}
    assert await tasks_of(hooked, "shop") == []
    wrong = await hooked.http.post("/v1/triggers/shop/try", content=b'{"thing": 1}')
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-request")
    started = await hooked.http.post("/v1/triggers/shop/try", params={**query, "start": True}, content=b'{"item": 1}')
    assert await tasks(hooked, "shop", 1) == ["1 orders.new"]
    assert [task.run for task in await tasks_of(hooked, "shop")] == [started.json()["run"]]
    unknown = await hooked.http.post("/v1/triggers/none/try", content=b"{}")
    assert unknown.json()["code"] == "unknown-trigger"


async def test_what_is_wrong_in_a_definition_is_named_by_its_field(hooked: World) -> None:
    right = {"agent": "clerk", "task": "x"}
    for path, given, field in (
        ("schedules/a", {**right, "every": "10 moons"}, "every"),
        ("schedules/a", {**right, "every": 5, "cron": "* * * * *"}, "every, cron"),
        ("schedules/a", {"agent": "clerk", "every": 5}, "task"),
        ("schedules/a", {**right, "task": "{{ nothing }}", "every": 5}, "task"),
        ("schedules/a", {**right, "agent": "a clerk", "every": 5}, "agent"),
        ("schedules/a b", {**right, "every": 5}, "name"),
        ("triggers/a", right, "subject, webhook"),
        ("triggers/a", {**right, "webhook": {}}, "webhook.secret_env"),
        ("triggers/a", {**right, "webhook": {"secret_env": "HOME"}}, "webhook.secret_env"),
        ("notices/a", {"url": "desk", "secret_env": "CADRE_SECRET_SHOP"}, "url"),
        ("budgets/a", {"window": "day"}, "tokens, cost"),
        ("budgets/a", {"window": "year", "tokens": 1}, "window"),
        ("budgets/a", {"window": "day", "tokens": "lots"}, "tokens"),
        ("budgets/a", {"window": "day", "tokens": 1, "colour": "red"}, "colour"),
    ):
        answer = await hooked.http.put(f"/v1/{path}", json=given)
        assert (answer.status_code, answer.json().get("field")) == (422, field), answer.text
