"""Runs that no replica of their agent has begun: they are in the list as all others are, no matter what becomes of the
gateway, until they begin or are erased."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from cadre.protocol.messages import Task
from cadre.protocol.topology import task_id
from harness.nats_server import NatsServer
from harness.patience import until
from integration.gateway_world import FINISHED, GatewayProcess, World, new_run, with_boss

LABELS = {"ticket": "q1"}


async def queued_run(world: World, **wanted: Any) -> str:
    """A run that the gateway has taken and no agent begins."""
    request = {"agent": "boss", "task": "Count the teapots.", **wanted}
    answer = await world.http.post("/v1/runs", json=request)
    assert (answer.status_code, answer.json()["state"]) == (202, "queued"), answer.text
    return str(answer.json()["id"])


async def begin(world: World, run: str, *events: Any) -> None:
    """As the run's agent does."""
    scribe, task = world.scribe(run), await world.history.task(run, run)
    assert task is not None
    accepted = scribe.accepted(task.task, session=task.session)
    accepted.task.labels.update(task.labels)
    await scribe.write(accepted, *events)


async def ids(world: World, **query: str) -> list[str]:
    """The listed runs, the newest first."""
    answer = await world.http.get("/v1/runs", params={"limit": 1000, **query})
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["runs"]]


async def test_a_queued_run_is_found_by_all_that_is_known_of_it(world: World) -> None:
    session = new_run()
    run = await queued_run(world, session=session, user="ann", labels=LABELS)
    listed = await world.listed(run, state="queued")
    shown = (await world.http.get(f"/v1/runs/{run}")).json()
    assert {key: shown[key] for key in listed} == listed
    assert (listed["session"], listed["user"], listed["labels"]) == (session, "ann", LABELS)
    for query in ({"session": session}, {"user": "ann"}, {"label": "ticket=q1"}, {"text": "teapots count"}):
        assert run in await ids(world, agent="boss", **query)
    assert run not in await ids(world, state="running")


async def test_a_queued_run_that_begins_is_the_same_one(world: World) -> None:
    run = await queued_run(world, session=new_run(), labels=LABELS)
    await world.listed(run, state="queued")
    await begin(world, run)
    assert (await world.listed(run, state="running"))["labels"] == LABELS
    assert run not in await ids(world, state="queued")
    await begin(world, other := await queued_run(world), FINISHED)
    await world.listed(other, state="success")
    assert (await ids(world, text="teapots")).count(run) == 1


async def test_a_record_that_is_no_task_queues_nothing(world: World) -> None:
    """A large task lies in the object store; what else is sent by gateways names runs that there may not be."""
    strange = new_run()
    cancelled = await world.http.post(f"/v1/runs/{strange}/cancel")
    assert cancelled.status_code == 404
    run = await queued_run(world, task="Read this: " + "so much " * 50_000)
    assert (await world.listed(run, state="queued"))["task"].startswith("Read this: so much")
    assert strange not in await ids(world)


async def test_what_agents_begin_below_a_run_is_no_root(world: World) -> None:
    """Only gateways begin root runs, and they alone are read."""
    root = new_run()
    task = Task(id=task_id(root), tree=root, run=root, at=1.0, agent="boss", task="Of an agent.")
    await world.bus.send(task, "boss")
    await world.listed(await queued_run(world))
    assert root not in await ids(world)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_queued_runs_outlast_the_gateway_and_its_index(
    nats_server: NatsServer, tmp_path: Path, how: signal.Signals
) -> None:
    gateway = GatewayProcess(nats_server.url, tmp_path)
    try:
        async with with_boss(gateway) as world:
            ended = await world.ended_run()
            runs = [await queued_run(world) for _ in range(30)]
            begun, left = runs[::2], runs[1::2]
            await begin(world, begun[0])
            await asyncio.to_thread(gateway.end, how)
            for run in begun[1:]:
                await begin(world, run, FINISHED)
            gateway.start()
            expected = [[begun[0]], left, sorted([ended, *begun[1:]])]

            async def by_state() -> list[list[str]]:
                return [sorted(await ids(world, state=one)) for one in ("running", "queued", "success")]

            assert await by_state() == expected, "also what was queued is in the saved index"

            await asyncio.to_thread(gateway.end, how)
            gateway.index_file.unlink()
            gateway.start()
            assert await by_state() == expected, "the streams tell it as well"

            assert (await world.http.post("/v1/index/rebuild")).status_code == 202

            async def rebuilt() -> bool:
                told = (await world.http.get("/v1/index")).json()["rebuild"]
                assert told["state"] != "failed", told
                return bool(told["state"] == "done")

            await until(rebuilt)
            assert await by_state() == expected
    finally:
        gateway.kill()


async def test_a_queued_run_is_erased_and_may_be_begun_anew(nats_server: NatsServer, tmp_path: Path) -> None:
    gateway = GatewayProcess(nats_server.url, tmp_path)
    try:
        async with with_boss(gateway) as world:
            run = await queued_run(world)
            await world.listed(run)
            refused = await world.http.delete(f"/v1/runs/{run}")
            assert (refused.status_code, refused.json()["code"]) == (409, "run-not-ended")
            await world.registry.withdraw()

            async def nobody() -> bool:
                (boss,) = (await world.http.get("/v1/agents")).json()["agents"]
                return not boss["replicas"]

            await until(nobody)
            erased = await world.http.delete(f"/v1/runs/{run}", params={"force": "true"})
            assert (erased.status_code, erased.json()["runs"]) == (200, 1), erased.text
            assert run not in await ids(world)
            assert (await world.http.get(f"/v1/runs/{run}")).status_code == 404
            await asyncio.to_thread(gateway.stop)
            gateway.index_file.unlink()
            gateway.start()
            assert await ids(world) == []
    finally:
        gateway.kill()
