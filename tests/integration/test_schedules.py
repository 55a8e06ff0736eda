"""Schedules on a real server: over HTTP, and with gateways that are killed at their ticks."""

import asyncio
import random
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.nats.streams import jetstream
from cadre.client.client import AsyncClient
from cadre.client.errors import NotFound
from cadre.delivery.codec import unpack_record
from cadre.protocol.messages import Task
from harness.nats_server import NatsServer
from harness.patience import until
from integration.gateway_world import GatewayProcess, World, entered

SECONDS = 60
EVERY = 3


async def tasks_of(world: World, agent: str) -> list[Task]:
    """The tasks in the agent's inbox, in the order of their runs' starts."""
    found = []
    for shard in range(world.topology.shards):
        stream, inbox = world.topology.stream(shard), world.topology.inbox_filter(shard, agent)
        async for held in jetstream.messages(world.nc, stream, inbox):
            record = await unpack_record(held.data, world.blobs)
            if isinstance(record, Task):
                found.append(record)
    return sorted(found, key=lambda task: task.at)


async def shown(world: World, name: str) -> dict[str, Any]:
    answer = await world.http.get(f"/v1/schedules/{name}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def outcomes(world: World, name: str, count: int) -> list[str]:
    """Return what became of the first ticks, once it is known of so many."""

    async def ask() -> list[str]:
        found = [one["outcome"] for one in (await shown(world, name))["outcomes"]]
        return found[::-1] if len(found) >= count and "starting" not in found else []

    return (await until(ask))[:count]


async def test_a_schedule_over_http(world: World) -> None:
    spec = {"agent": "boss", "task": "Tick {{ count }}.", "every": 1, "count": 2, "overlap": "allow"}
    made = await world.http.post("/v1/schedules", json={"name": "twice", **spec})
    assert made.status_code == 201, made.text
    assert (await world.http.post("/v1/schedules", json={"name": "twice", **spec})).status_code == 409
    assert await outcomes(world, "twice", 2) == ["started", "started"]
    over = await shown(world, "twice")
    assert (over["ticks"], over["next"], over["spec"]) == (2, [], {**spec, "every": 1.0})
    run = (await world.http.get(f"/v1/runs/{over['last_run']}")).json()
    assert (run["task"], run["agent"]) == ("Tick 2.", "boss")
    assert (await world.http.delete("/v1/schedules/twice")).status_code == 204
    assert (await world.http.get("/v1/schedules/twice")).json()["code"] == "unknown-schedule"


async def test_pause_resume_and_run_now(world: World) -> None:
    spec = {"agent": "boss", "task": "x", "cron": "0 0 1 1 *", "time_zone": "Europe/Berlin"}
    assert (await world.http.put("/v1/schedules/yearly", json=spec)).json()["paused"] is False
    assert (await world.http.post("/v1/schedules/yearly/pause")).json()["paused"] is True
    again = await world.http.put("/v1/schedules/yearly", json=spec)
    assert again.json()["paused"] is True, "the same file again leaves the pause"
    assert (await world.http.post("/v1/schedules/yearly/resume")).json()["paused"] is False
    key = {"Idempotency-Key": "k1"}
    first = await world.http.post("/v1/schedules/yearly/run", headers=key)
    second = await world.http.post("/v1/schedules/yearly/run", headers=key)
    assert first.status_code == 202
    assert first.json() == second.json()
    assert first.headers["Location"] == f"/v1/runs/{first.json()['id']}"
    assert (await shown(world, "yearly"))["started"] == 1
    listed = (await world.http.get("/v1/schedules", params={"next": 3})).json()["schedules"]
    (yearly,) = [one for one in listed if one["name"] == "yearly"]
    assert [datetime.fromtimestamp(tick, UTC).hour for tick in yearly["next"]] == [23, 23, 23]


async def test_a_schedule_that_is_made_again_has_other_runs(world: World) -> None:
    """The ids of its runs follow from no name and no time that others know."""
    spec = {"agent": "boss", "task": "x", "cron": "0 0 1 1 *"}

    async def started() -> str:
        answer = await world.http.post("/v1/schedules/again/run", headers={"Idempotency-Key": "k1"})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    assert (await world.http.put("/v1/schedules/again", json=spec)).status_code == 200
    first = await started()
    assert (await world.http.put("/v1/schedules/again", json=spec | {"task": "y"})).status_code == 200
    assert await started() == first
    assert (await world.http.delete("/v1/schedules/again")).status_code == 204
    assert (await world.http.put("/v1/schedules/again", json=spec)).status_code == 200
    assert await started() != first


async def test_schedules_from_python(world: World, gateway: GatewayProcess) -> None:
    async with AsyncClient(gateway.url) as client:
        made = await client.put_schedule("python", {"agent": "boss", "task": "x", "cron": "0 0 1 1 *"})
        assert (made.name, made.spec["cron"]) == ("python", "0 0 1 1 *")
        first = await client.run_schedule("python", idempotency_key="k")
        assert (await client.run_schedule("python", idempotency_key="k")).id == first.id
        assert (await client.schedule("python", upcoming=3)).last_run == first.id
        assert "python" in [one.name for one in await client.schedules()]
        await client.remove_schedule("python")
        with pytest.raises(NotFound):
            await client.schedule("python")


async def test_other_definitions_and_statistics_from_python(world: World, gateway: GatewayProcess) -> None:
    async with AsyncClient(gateway.url) as client:
        notice = {"url": "https://example.org/hook", "secret_env": "CADRE_SECRET_X"}
        assert (await client.put_notice("python", notice)).url == notice["url"]
        trigger = {"agent": "boss", "task": "x", "subject": "orders"}
        assert (await client.put_trigger("python", trigger)).subject == "orders"
        made = await client.put_budget("python", {"window": "day", "cost": 2, "user": "*"})
        assert (made.share, made.uses, made.until - made.since) == (0.0, [], 86_400)
        assert await client.budget("python") == made
        assert [one.name for one in await client.budgets()] == ["python"]
        assert [one.name for one in await client.notices()] == ["python"]
        assert [one.name for one in await client.triggers()] == ["python"]
        for remove, show in (
            (client.remove_notice, client.notice),
            (client.remove_trigger, client.trigger),
            (client.remove_budget, client.budget),
        ):
            await remove("python")
            with pytest.raises(NotFound):
                await show("python")
        found = await client.statistics("agent", "day", since=0.0, user="nobody")
        assert (found.by, found.rows, found.total.runs) == (["agent", "day"], [], 0)


async def test_what_is_wrong_with_a_schedule_is_said(world: World) -> None:
    async def refusal(**changes: Any) -> str:
        spec = {"agent": "boss", "task": "x", "every": 60, **changes}
        answer = await world.http.put("/v1/schedules/wrong", json=spec)
        assert answer.status_code == 422, answer.text
        return str(answer.json()["detail"])

    assert "cron: 'x'" in await refusal(every=None, cron="x")
    assert "unknown key" in await refusal(when="now")
    assert "max_steps" in await refusal(options={"max_steps": 0})
    assert "known keys: agent, task, inputs" in await refusal(options={"additional_args": {"n": 1}})
    assert "'moon' is undefined" in await refusal(task="{{ moon }}")
    assert (await world.http.get("/v1/schedules/wrong")).status_code == 404


async def test_the_agent_need_not_be_there_at_the_tick(world: World) -> None:
    spec = {"agent": "nobody", "task": "Wait.", "every": 1, "count": 1}
    await world.http.put("/v1/schedules/patient", json=spec)
    assert await outcomes(world, "patient", 1) == ["started"]
    # The decision to start a run is kept before the run is started.
    (task,) = await until(lambda: tasks_of(world, "nobody"))
    assert task.task == "Wait."


async def test_a_tick_that_came_while_no_gateway_ran_is_made_up_for(nats_server: NatsServer, tmp_path: Path) -> None:
    gateway = GatewayProcess(nats_server.url, tmp_path)
    try:
        async with entered(gateway) as world:
            at = datetime.fromtimestamp(time.time() + 2, UTC).isoformat()
            await world.http.put("/v1/schedules/once", json={"agent": "a", "task": "x", "start": at})
            gateway.kill()
            await asyncio.sleep(3)
            await asyncio.to_thread(gateway.start)
            assert await outcomes(world, "once", 1) == ["started"]
            assert len(await until(lambda: tasks_of(world, "a"))) == 1
    finally:
        gateway.kill()


async def test_each_tick_of_a_minute_starts_one_run_while_gateways_are_killed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Three gateways; about each tick one of them is killed, and comes back."""
    first = GatewayProcess(nats_server.url, tmp_path)
    gateways = [first, *(GatewayProcess(nats_server.url, tmp_path, first.settings) for _ in range(2))]
    chance = random.Random(5)
    killed = 0
    try:
        async with entered(first) as world:
            spec = {"agent": "a", "task": "{{ tick.timestamp() }}", "every": EVERY, "overlap": "allow"}
            made = (await world.http.put("/v1/schedules/minute", json=spec)).json()["next"][0]
            ticks = [made + number * EVERY for number in range(SECONDS // EVERY)]
            backs: list[asyncio.Task[None]] = []
            for number, tick in enumerate(ticks):
                await asyncio.sleep(max(0.0, tick + chance.uniform(-0.1, 0.4) - time.time()))
                victim = gateways[number % 3]
                if len(backs) >= 3:
                    await backs[-3]
                victim.kill()
                killed += 1
                backs.append(asyncio.create_task(asyncio.to_thread(victim.start)))
            await asyncio.gather(*backs)

            async def all_started() -> list[Task]:
                found = await tasks_of(world, "a")
                return found if found and float(found[-1].task) >= ticks[-1] else []

            tasks = await until(all_started)
            runs = {task.run: float(task.task) for task in tasks}
            per_tick = Counter(runs.values())
            assert [per_tick[tick] for tick in ticks] == [1] * len(ticks), per_tick
            assert killed == len(ticks)
    finally:
        for gateway in gateways:
            gateway.kill()
