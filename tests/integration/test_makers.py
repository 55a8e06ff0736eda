"""Anything that starts a run starts it with somebody's rights, which are read again at each start: schedules and
triggers pause when their makers have lost theirs, and say so."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from click.testing import CliRunner

from cadre.adapters.nats.streams import jetstream
from cadre.automation.notice import signature
from cadre.cli.main import group
from harness.nats_server import NatsServer
from harness.oidc_provider import OidcProviderServer
from harness.patience import patience, until
from integration.gateway_world import GatewayProcess, World, entered, new_run
from integration.oidc_world import program, settings_of
from integration.test_access import ADMIN_KEY, client
from integration.test_notice_delivery import SECRET as NOTICE_SECRET
from integration.test_notice_delivery import Receiver
from integration.test_notice_delivery import receiver as receiver
from integration.test_schedules import outcomes, shown, tasks_of
from integration.test_triggers import SECRET

KEYS: dict[str, Any] = {
    "CADRE_AUTH": "keys",
    "CADRE_ADMIN_KEY": ADMIN_KEY,
    "CADRE_SECRET_SHOP": SECRET,
    "CADRE_SECRET_DESK": NOTICE_SECRET,
    "CADRE_NOTICE_PRIVATE": "127.0.0.0/8",
}
OFTEN: dict[str, Any] = {"agent": "boss", "task": "Tick {{ count }}.", "every": 1, "overlap": "allow"}


@pytest.fixture(scope="module")
def locked(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    one = GatewayProcess(nats_server.url, tmp_path_factory.mktemp("locked"), **KEYS)
    yield one
    one.kill()


@pytest.fixture
async def world(locked: GatewayProcess) -> AsyncIterator[World]:
    """As the administrator."""
    async with entered(locked) as one:
        one.http.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        for name in ("boss", "poet"):
            await one.announce(name)
        yield one


def named() -> str:
    return f"n{uuid4().hex[:10]}"


async def tick_started(world: World, name: str) -> dict[str, Any]:
    async def ask() -> dict[str, Any] | None:
        found = await shown(world, name)
        return found if found["started"] else None

    return await until(ask)


async def paused(world: World, name: str, code: str) -> dict[str, Any]:
    async def ask() -> dict[str, Any] | None:
        found = await shown(world, name)
        return found if found["paused"] else None

    found = await until(ask)
    assert found["paused_for"] == code
    return found


def signed(message: str, data: bytes) -> dict[str, str]:
    """Headers of a webhook with this id."""
    now = int(time.time())
    own = signature(SECRET, message, now, data)
    return {"webhook-id": message, "webhook-timestamp": str(now), "webhook-signature": own}


async def revoke(world: World, http: httpx2.AsyncClient) -> None:
    key = http.headers["Authorization"].split("_")[1]
    assert (await world.http.delete(f"/v1/keys/{key}")).status_code == 200


async def test_a_schedule_whose_makers_key_was_revoked_pauses_and_says_so(world: World, monkeypatch: Any) -> None:
    name = named()
    async with await client(world, "operator", user="ann") as ann:
        made = await ann.post("/v1/schedules", json={"name": name, **OFTEN})
        assert (made.status_code, made.json()["maker"]) == (201, "ann"), made.text
        run = (await tick_started(world, name))["last_run"]
        assert (await world.http.get(f"/v1/runs/{run}")).json()["user"] == "ann", "in its maker's name"
        await revoke(world, ann)
    at = time.time()
    pause = await paused(world, name, "maker-revoked")
    # What another gateway may not have heard yet counts there for five seconds.
    assert all(tick["at"] < at + 6 for tick in pause["outcomes"] if tick["outcome"] == "started")
    monkeypatch.setenv("CADRE_GATEWAY_URL", str(world.http.base_url))
    for words in (["schedule", "ls"], ["schedule", "show", name]):
        done = await asyncio.to_thread(CliRunner().invoke, group, ["--key", ADMIN_KEY, *words])
        assert "paused: maker-revoked" in done.stdout, done.output
    ticks = (await shown(world, name))["ticks"]
    resumed = await world.http.post(f"/v1/schedules/{name}/resume")
    assert (resumed.json()["paused"], resumed.json()["paused_for"]) == (False, "")
    assert resumed.json()["maker"] == "admin", "it goes on with the rights of who has resumed it"

    async def goes_on() -> bool:
        return bool((await shown(world, name))["ticks"] > ticks)

    await until(goes_on)
    assert (await world.http.delete(f"/v1/schedules/{name}")).status_code == 204


async def test_a_loss_shows_before_the_tick_and_a_one_time_schedule_keeps_its_tick(world: World) -> None:
    yearly, once = named(), named()
    at = datetime.fromtimestamp(time.time() + 2, UTC).isoformat()
    async with await client(world, "operator") as robot:
        await robot.put(f"/v1/schedules/{yearly}", json={"agent": "boss", "task": "x", "cron": "0 0 1 1 *"})
        await revoke(world, robot)
        assert (await shown(world, yearly))["paused_for"] == "maker-revoked"
    async with await client(world, "operator") as robot:
        await robot.put(f"/v1/schedules/{once}", json={"agent": "boss", "task": "x", "start": at})
        await revoke(world, robot)
    pause = await paused(world, once, "maker-revoked")
    await asyncio.sleep(max(0.0, pause["next"][0] + 1 - time.time()))
    assert (await shown(world, once))["ticks"] == 0
    again = await world.http.put(f"/v1/schedules/{once}", json={"agent": "boss", "task": "x", "start": at})
    assert again.json()["paused"] is False, "who writes the same again answers for it"
    assert await outcomes(world, once, 1) == ["started"]


async def test_a_schedule_that_a_person_has_paused_is_resumed_with_the_rights_of_who_may(
    world: World,
) -> None:
    name = named()
    async with (
        await client(world, "operator", user="ann") as ann,
        await client(world, "operator", user="bob") as bob,
    ):
        spec = {**OFTEN, "options": {"user": "ann"}, "paused": True}
        assert (await ann.put(f"/v1/schedules/{name}", json=spec)).status_code == 200
        resumed = await bob.post(f"/v1/schedules/{name}/resume")
        assert resumed.json()["maker"] == "ann", "who has made it answers for it still"
        assert (await bob.post(f"/v1/schedules/{name}/pause")).json()["paused_for"] == ""
        await revoke(world, ann)
        refused = await bob.post(f"/v1/schedules/{name}/resume")
        assert (refused.status_code, refused.json()["code"]) == (403, "out-of-scope")
        assert (await shown(world, name))["paused"] is True
    resumed = await world.http.post(f"/v1/schedules/{name}/resume")
    assert (resumed.json()["maker"], resumed.json()["paused"]) == ("admin", False)
    assert (await world.http.delete(f"/v1/schedules/{name}")).status_code == 204


async def test_a_schedule_pauses_when_its_makers_key_expires(world: World) -> None:
    name = named()
    async with await client(world, "operator", expires_in=3) as robot:
        assert (await robot.put(f"/v1/schedules/{name}", json=OFTEN)).status_code == 200
    await paused(world, name, "maker-expired")
    assert (await world.http.delete(f"/v1/schedules/{name}")).status_code == 204


async def test_runs_that_a_schedule_starts_count_for_its_maker(world: World) -> None:
    name = named()
    async with await client(world, "operator", runs_per_day=2) as robot:
        assert (await robot.post("/v1/runs", json={"agent": "boss", "task": "x"})).status_code == 202
        assert (await robot.put(f"/v1/schedules/{name}", json=OFTEN)).status_code == 200
        assert await outcomes(world, name, 3) == ["started", "failed", "failed"]
        found = await shown(world, name)
        assert found["started"] == 1
        assert found["outcomes"][0]["code"] == "rate-limited"
        refused = await robot.post(f"/v1/schedules/{name}/run")
        assert (refused.status_code, refused.json()["code"]) == (429, "rate-limited")
        assert (await world.http.post(f"/v1/schedules/{name}/run")).status_code == 202, "with its own rights"
    assert (await world.http.delete(f"/v1/schedules/{name}")).status_code == 204


async def test_a_repeated_key_takes_nothing_from_the_runs_of_a_day(world: World) -> None:
    body, headers = {"agent": "boss", "task": "x"}, {"Idempotency-Key": named()}
    async with await client(world, "operator", runs_per_day=1) as robot:
        for _ in range(3):
            assert (await robot.post("/v1/runs", json=body, headers=headers)).status_code == 202
        assert (await robot.post("/v1/runs", json=body)).json()["code"] == "rate-limited"


async def test_no_key_starts_runs_in_the_name_of_another(world: World) -> None:
    """Neither by a request nor by what starts runs later."""
    spec = {**OFTEN, "paused": True}
    async with (
        await client(world, "operator", user="bob") as bob,
        await client(world, "admin", user="bob") as boss,
        await client(world, "operator", agents=["poet"]) as poets,
        await client(world, "operator") as robot,
    ):
        for answer in (
            await bob.post("/v1/runs", json={"agent": "boss", "task": "x", "user": "ann"}),
            await bob.post("/v1/schedules", json={**spec, "name": named(), "options": {"user": "ann"}}),
            await bob.put(f"/v1/schedules/{named()}", json={**spec, "options": {"user": "ann"}}),
            await boss.put(
                f"/v1/triggers/{named()}",
                json={"agent": "boss", "task": "x", "subject": "x", "options": {"user": "ann"}},
            ),
            await poets.post("/v1/runs", json={"agent": "poet", "task": "x", "user": "ann"}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "out-of-scope"), answer.text
        own = await bob.post("/v1/runs", json={"agent": "boss", "task": "x", "user": "bob"})
        assert own.status_code == 202
        free = await poets.post("/v1/runs", json={"agent": "poet", "task": "x"})
        assert (await world.http.get(f"/v1/runs/{free.json()['id']}")).json()["user"] is None
        # A program's key names people.
        name = named()
        made = await robot.put(f"/v1/schedules/{name}", json={**spec, "options": {"user": "ann"}})
        assert made.status_code == 200
        assert (await bob.post(f"/v1/schedules/{name}/run")).json()["code"] == "out-of-scope"
        started = await robot.post(f"/v1/schedules/{name}/run")
        assert (await world.http.get(f"/v1/runs/{started.json()['id']}")).json()["user"] == "ann"
        taken = await bob.put(f"/v1/schedules/{name}", json={**spec, "options": {"user": "ann"}})
        assert taken.json()["code"] == "out-of-scope"


async def test_no_callers_key_takes_the_place_of_a_tick_or_an_event(world: World) -> None:
    schedule, trigger = named(), named()
    at = int(time.time()) + 3
    start = datetime.fromtimestamp(at, UTC).isoformat()
    await world.http.put(f"/v1/schedules/{schedule}", json={"agent": "boss", "task": "Tick.", "start": start})
    hook = {"agent": "boss", "task": "{{ payload.t }}", "webhook": {"secret_env": "CADRE_SECRET_SHOP"}}
    assert (await world.http.put(f"/v1/triggers/{trigger}", json=hook)).status_code == 200
    ticks, events = (f"{at:.3f}", f"{at}"), ("order-7",)
    async with await client(world, "operator", user="eve", own=True) as eve:
        for key in [
            *(f"{place}{tick}" for tick in ticks for place in ("", f"schedule/{schedule}/", f"schedule {schedule} ")),
            *(f"{place}{one}" for one in events for place in ("", f"trigger/{trigger}/", f"trigger {trigger} ")),
        ]:
            body, headers = {"agent": "boss", "task": "EVE"}, {"Idempotency-Key": key}
            assert (await eve.post("/v1/runs", json=body, headers=headers)).status_code == 202
    data = json.dumps({"t": "Order."}).encode()
    async with httpx2.AsyncClient(base_url=world.http.base_url, timeout=patience()) as shop:
        answer = await shop.post(f"/v1/triggers/{trigger}", content=data, headers=signed("order-7", data))
    assert answer.status_code == 202, answer.text
    assert (await world.http.get(f"/v1/runs/{answer.json()['id']}")).json()["task"] == "Order."
    assert await outcomes(world, schedule, 1) == ["started"]
    run = (await shown(world, schedule))["last_run"]
    assert (await world.http.get(f"/v1/runs/{run}")).json()["task"] == "Tick."


async def test_a_trigger_whose_makers_key_was_revoked_keeps_its_messages(world: World) -> None:
    name = named()
    spec = {
        "agent": name,
        "task": "{{ payload.t }}",
        "subject": f"{name}.x",
        "webhook": {"secret_env": "CADRE_SECRET_SHOP"},
    }
    async with await client(world, "admin") as robot:
        made = await robot.put(f"/v1/triggers/{name}", json=spec)
        assert made.status_code == 200, made.text
        await revoke(world, robot)
    listed = (await world.http.get("/v1/triggers")).json()["triggers"]
    assert [one["paused_for"] for one in listed if one["name"] == name] == ["maker-revoked"]
    data = b'{"t": "Order."}'
    async with httpx2.AsyncClient(base_url=world.http.base_url, timeout=patience()) as shop:
        refused = await shop.post(f"/v1/triggers/{name}", content=data, headers=signed("m1", data))
    assert (refused.status_code, refused.json()["code"]) == (503, "trigger-paused")
    await jetstream.append(world.nc, f"{world.topology.events_prefix}{name}.x", data)

    async def letters() -> list[dict[str, Any]]:
        found = (await world.http.get("/v1/dead-letters")).json()["dead_letters"]
        return [one for one in found if name in one["reason"]]

    (letter,) = await until(letters)
    taken = await world.http.put(f"/v1/triggers/{name}", json=spec)
    assert (taken.json()["maker"], taken.json().get("paused_for", "")) == ("admin", "")
    assert (await world.http.post(f"/v1/dead-letters/{letter['id']}/retry")).status_code == 200
    (task,) = await until(lambda: tasks_of(world, name))
    assert task.task == "Order."


async def test_a_notice_whose_makers_key_was_revoked_is_not_sent(world: World, receiver: Receiver) -> None:
    """A notice goes to no address of its maker once the maker may not read the run any more."""
    agent, elsewhere = named(), Receiver()
    spec = {"secret_env": "CADRE_SECRET_DESK", "agents": [agent]}

    async def sent(address: Receiver) -> str:
        """A run that a webhook there names; others may be over before the journals are followed."""
        run = new_run()
        await world.finished_run(run, agent)
        async with asyncio.timeout(1):
            await until(lambda: heard(address, run))
        return run

    async def heard(address: Receiver, run: str) -> bool:
        return run in [one["subject"] for one in address.taken]

    async def once_sent(address: Receiver) -> str:
        while True:
            with contextlib.suppress(TimeoutError):
                return await sent(address)

    try:
        async with await client(world, "admin") as robot:
            theirs = f"/v1/notices/{named()}"
            made = await robot.put(theirs, json={**spec, "url": elsewhere.url})
            assert made.status_code == 200, made.text
            async with asyncio.timeout(patience()):
                await once_sent(elsewhere)
            await revoke(world, robot)
        assert (await world.http.get(theirs)).json()["paused_for"] == "maker-revoked"
        ours = await world.http.put(f"/v1/notices/{named()}", json={**spec, "url": receiver.url})
        assert ours.json()["maker"] == "admin"
        async with asyncio.timeout(patience()):
            first = await once_sent(receiver)
            second = await once_sent(receiver)
        assert first != second
        assert not {first, second} & {one["subject"] for one in elsewhere.taken}
    finally:
        elsewhere.close()


async def test_what_was_made_while_no_key_was_asked_for_waits_for_a_maker(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    open_to_all = GatewayProcess(nats_server.url, tmp_path)
    guarded = None
    try:
        async with entered(open_to_all) as world:
            assert (await world.http.put("/v1/schedules/free", json=OFTEN)).json()["maker"] == ""
            await tick_started(world, "free")
            open_to_all.kill()
            guarded = await asyncio.to_thread(GatewayProcess, nats_server.url, tmp_path, open_to_all.settings, **KEYS)
        async with entered(guarded) as world:
            world.http.headers["Authorization"] = f"Bearer {ADMIN_KEY}"
            before = await paused(world, "free", "maker-unknown")
            taken = (await world.http.put("/v1/schedules/free", json=OFTEN)).json()
            assert (taken["maker"], taken["paused"]) == ("admin", False)

            async def goes_on() -> bool:
                return bool((await shown(world, "free"))["started"] > before["started"])

            await until(goes_on)
    finally:
        for one in (open_to_all, guarded):
            if one is not None:
                one.kill()


async def test_a_person_whom_a_provider_knows_is_a_maker_while_somebody_is_granted_that(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    with contextlib.closing(OidcProviderServer()) as provider:
        provider.people = {"operator": {"roles": ["operator"]}}
        settings = settings_of(provider)
        gateway = GatewayProcess(nats_server.url, tmp_path, **settings)
        try:
            async with entered(gateway) as world:
                token = provider.token("operator")
                async with program(world, token) as ann:
                    made = await ann.put("/v1/schedules/mine", json=OFTEN)
                    assert made.status_code == 200, made.text
                    world.http.headers["Authorization"] = f"Bearer {token}"
                    run = (await tick_started(world, "mine"))["last_run"]
                    assert (await ann.get(f"/v1/runs/{run}")).json()["user"] == "operator"
                gateway.kill()
                grants = {"admins": {"roles": ["admin"]}}
                changed = await asyncio.to_thread(
                    lambda: GatewayProcess(
                        nats_server.url,
                        tmp_path,
                        gateway.settings,
                        **{**settings, "CADRE_OIDC_GRANTS": json.dumps(grants)},
                    )
                )
            try:
                async with entered(changed) as world:
                    world.http.headers["Authorization"] = f"Bearer {settings['CADRE_ADMIN_KEY']}"
                    await paused(world, "mine", "maker-revoked")
            finally:
                changed.kill()
        finally:
            gateway.kill()
