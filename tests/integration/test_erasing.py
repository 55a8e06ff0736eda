"""Erasing a run through real gateways: nothing of it is left, other gateways learn of it, late ones are fenced off."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.sessions import NatsSessions
from cadre.adapters.nats.streams import jetstream
from cadre.automation.notice import PUSHES, PushTarget, TaskPushes
from cadre.delivery.codec import encode
from cadre.errors import BlobMissing, Fenced
from cadre.journal.events import RecordIgnored, RunAccepted
from cadre.protocol.messages import (
    Erased,
    Spilled,
    Task,
    ToolResult,
)
from cadre.protocol.topology import call_id, run_id_of, task_id
from harness.nats_server import NatsServer
from harness.patience import patience, until
from integration.gateway_world import (
    CALLED,
    FINISHED,
    GatewayProcess,
    World,
    entered,
    new_run,
    sse_events,
    with_boss,
)
from integration.remains import CANARY, full_tree, gone, left_of

IGNORED = RecordIgnored(kind="ToolResult", code="not-begun")


@pytest.fixture(scope="module")
def second(gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Another replica of the same gateway."""
    one = GatewayProcess(gateway.settings.nats_url, tmp_path_factory.mktemp("second"), gateway.settings)
    yield one
    one.kill()


@pytest.fixture
async def other(second: GatewayProcess) -> AsyncIterator[World]:
    async with entered(second) as one:
        yield one


async def status(world: World, run: str) -> int:
    return (await world.http.get(f"/v1/runs/{run}")).status_code


async def test_an_erased_run_leaves_nothing_anywhere(world: World) -> None:
    run = new_run()
    blobs = await full_tree(world, run)
    await world.listed(run, state="success")
    assert len(await left_of(world, run, *blobs)) > 10
    answer = await world.http.delete(f"/v1/runs/{run}")
    assert (answer.status_code, answer.json()) == (200, {"id": run, "runs": 2})
    assert await status(world, run) == 404
    assert await status(world, call_id(run, 1, 0)) == 404
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 404
    await gone(world, run, *blobs)
    turn, _ = await NatsSessions(world.nc, world.topology).read("boss", "talk", None)
    assert turn is None


async def test_tasks_given_to_agents_elsewhere_are_found_in_what_was_too_large_as_well(world: World) -> None:
    run = new_run()
    called = f'{{"arguments":{{"message_id":"{run}_1_0-1"}}}}'.encode()
    ref = await world.blobs.put(called)
    spilled = Spilled(id=f"{run}:1", tree=run, run=run, at=0.0, ref=ref, size=len(called))
    journal, looked = world.topology.journal(run, run), f'{{"task":"{run}-2"}} {{"task":"0_1-7"}}'
    await jetstream.append(world.nc, journal, encode(spilled))
    await jetstream.append(world.nc, journal, looked.encode())
    found = await NatsErasure(world.nc, world.topology, world.blobs).belongings(run, 10**9)
    assert (found.exchanges, found.spilled) == ({f"{run}_1_0-1", f"{run}-2"}, {ref})


async def test_addresses_that_are_told_of_it_are_erased_with_it(world: World) -> None:
    run = await world.ended_run()
    pushes = NatsDefinitions(world.nc, world.topology, PUSHES, TaskPushes)
    target = PushTarget(id="a", url="https://example.org/told", token="secret")
    await pushes.write(run, TaskPushes(run=run, targets=[target]), 0)
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    assert await pushes.read(run) == (None, 0)


async def test_what_is_left_is_a_record_for_a_week(world: World) -> None:
    run = await world.ended_run()
    await world.http.delete(f"/v1/runs/{run}")
    held = await jetstream.last(world.nc, world.topology.stream_of(run), world.topology.lifecycle(run))
    assert held is not None
    assert json.loads(held.data)["type"] == "erased"
    _, headers = await jetstream.read(world.nc, world.topology.stream_of(run), held.seq) or (held, {})
    assert headers["Nats-TTL"] == "604800s"


async def test_other_gateways_learn_of_it(world: World, other: World) -> None:
    run = await world.ended_run()
    await other.listed(run, state="success")
    await world.http.delete(f"/v1/runs/{run}")

    async def unlisted() -> bool:
        return await status(other, run) == 404

    assert await until(unlisted)
    assert run not in (await other.http.get("/v1/runs", params={"limit": 1000})).text


@pytest.mark.parametrize(
    ("view", "first", "rest"), [("events", "run.accepted", ["model.called"]), ("rows", "rows", [])]
)
async def test_who_follows_a_run_that_is_erased_is_let_go(
    world: World, other: World, view: str, first: str, rest: list[str]
) -> None:
    """Its agent is away: no end of it will ever be reported."""
    run = new_run()
    scribe = world.scribe(run, "away")
    await scribe.write(scribe.accepted(), CALLED)
    events = f"/v1/runs/{run}/events?view={view}"
    async with (
        asyncio.timeout(patience()),
        world.http.stream("GET", events) as here,
        other.http.stream("GET", events) as there,
    ):
        both = sse_events(here), sse_events(there)
        for stream in both:
            assert (await anext(stream)).name == first
        await world.http.delete(f"/v1/runs/{run}", params={"force": "true"})
        for stream in both:
            assert [one.name async for one in stream] == rest
    assert (await world.http.get(events)).status_code == 404


async def test_who_waits_for_the_end_of_a_run_that_is_erased_is_told(world: World) -> None:
    asked = {"agent": "boss", "task": "Wait."}
    key = new_run()
    run = run_id_of("boss", "", key)
    headers = {"Idempotency-Key": key, "Prefer": "wait=60"}
    waiting = asyncio.create_task(world.http.post("/v1/runs", json=asked, headers=headers, timeout=patience()))
    await until(lambda: world.history.task(run, run))
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(), CALLED)
    await world.listed(run)
    erasure = NatsErasure(world.nc, world.topology, world.blobs)
    await erasure.record(Erased(id=f"{run}:erased", tree=run, run=run, at=time.time()), 0)
    async with asyncio.timeout(patience()):
        answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (410, "run-erased")


async def test_a_blob_that_another_run_names_stays(world: World) -> None:
    shared, own = await world.blobs.put(b"shared by two"), await world.blobs.put(b"of one alone")
    runs = [new_run(), new_run()]
    for run, blobs in zip(runs, ([shared, own], [shared]), strict=True):
        scribe = world.scribe(run)
        accepted = scribe.accepted()
        task = Task(id=task_id(run), tree=run, run=run, at=1.0, agent="boss", task="x", images=blobs)
        await scribe.write(RunAccepted(task=task, spec=accepted.spec, decided_by="tool_calling"))
        await scribe.write(FINISHED)
        await world.listed(run, state="success")
    await world.http.delete(f"/v1/runs/{runs[0]}")
    assert await world.blobs.get(shared) == b"shared by two"
    await gone(world, runs[0], own)
    await world.http.delete(f"/v1/runs/{runs[1]}")
    await gone(world, runs[1], shared)


async def test_a_blob_that_a_waiting_task_names_stays(world: World) -> None:
    """No one has taken the task up, so no journal says of the blob yet."""
    blob = await world.blobs.put(b"awaited elsewhere")
    run, waiting = new_run(), new_run()
    scribe = world.scribe(run)
    task = Task(id=task_id(run), tree=run, run=run, at=1.0, agent="boss", task="x", images=[blob])
    await scribe.write(RunAccepted(task=task, spec=scribe.accepted().spec, decided_by="tool_calling"))
    await scribe.write(FINISHED)
    await world.listed(run, state="success")
    await durable(world, "sleeper")
    later = Task(id=task_id(waiting), tree=waiting, run=waiting, at=1.0, agent="sleeper", task=blob)
    await world.bus.send(later, "gateway")
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    assert await world.blobs.get(blob) == b"awaited elsewhere"
    # The waiting one has no agent: it can be erased as it is.
    refused = await world.http.delete(f"/v1/runs/{waiting}")
    assert (refused.status_code, refused.json()["code"]) == (409, "run-not-ended")
    assert (await world.http.delete(f"/v1/runs/{waiting}", params={"force": True})).status_code == 200
    await gone(world, waiting, blob)


async def durable(world: World, agent: str) -> None:
    """The consumers of an agent that has been here and is gone."""
    for shard in range(world.topology.shards):
        stream, name = world.topology.stream(shard), world.topology.agent_consumer(agent)
        subject = world.topology.inbox_filter(shard, agent)
        config: dict[str, Any] = {"durable_name": name, "filter_subject": subject, "ack_policy": "explicit"}
        answer = await jetstream.api(
            world.nc, f"CONSUMER.CREATE.{stream}.{name}.{subject}", {"stream_name": stream, "config": config}
        )
        assert "error" not in answer, answer


async def test_only_whole_trees_that_have_ended_are_erased(world: World) -> None:
    run = new_run()
    child = call_id(run, 1, 0)
    root, below = world.scribe(run), world.scribe(child, "helper", run)
    await root.write(root.accepted())
    await below.write(below.accepted())
    await world.listed(run)

    async def known() -> bool:
        return await status(world, child) == 200

    assert await until(known)
    answer = await world.http.delete(f"/v1/runs/{child}")
    assert answer.status_code == 422
    assert run in answer.json()["detail"]
    for _ in range(2):
        answer = await world.http.delete(f"/v1/runs/{run}")
        assert (answer.status_code, answer.json()["code"]) == (409, "run-not-ended")
        assert "--force" in answer.json()["detail"]
        if below.entries == 1:
            await root.write(FINISHED)  # the root's end is not the end of its tree
            await below.write(CALLED)
    await below.write(FINISHED)
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code == 200
    assert (await world.http.delete(f"/v1/runs/{new_run()}")).status_code == 404


async def test_what_comes_late_for_an_erased_run_is_removed_too(world: World, other: World) -> None:
    run = await world.ended_run()
    await world.http.delete(f"/v1/runs/{run}")
    result = ToolResult(id="late", tree=run, run=run, at=1.0, call=f"{run}_1_0", tool="look", output=CANARY)
    await world.bus.send(result, "look", to="boss")
    await world.scribe(run).write(IGNORED)
    await world.scribe(call_id(run, 1, 0), "helper", run).write(world.scribe(run).accepted(CANARY))
    await gone(world, run)
    assert await status(world, run) == 404
    assert run not in (await world.http.get("/v1/runs", params={"limit": 1000})).text


async def test_a_late_entry_whose_predecessors_are_gone_is_no_run(world: World) -> None:
    """An append that was under way while the tree was removed leaves such an entry, until that is removed as well."""
    run = await world.ended_run()
    await world.http.delete(f"/v1/runs/{run}")
    late = world.scribe(run)
    first = await late.write(IGNORED)
    await late.write(IGNORED)
    stream = world.topology.stream_of(run)
    await jetstream.api(world.nc, f"STREAM.MSG.DELETE.{stream}", {"seq": first})
    assert await status(world, run) == 404
    await gone(world, run)


async def test_a_ghost_of_a_run_that_never_was_is_removed(world: World) -> None:
    run = new_run()
    await world.scribe(run).write(IGNORED)
    await gone(world, run)


async def test_a_record_that_overtook_its_task_is_no_ghost(world: World) -> None:
    run, mark = new_run(), new_run()
    task = Task(id=task_id(run), tree=run, run=run, at=time.time(), agent="boss", task="Do it.")
    await world.bus.send(task, "gateway")
    scribe = world.scribe(run)
    await scribe.write(IGNORED)
    # Ghosts are laid one after the other: behind this one, the first was judged.
    await world.scribe(mark).write(IGNORED)
    await gone(world, mark)
    await scribe.write(scribe.accepted())
    await world.listed(run, state="running")


async def test_a_zombie_cannot_write_on(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted())
    await scribe.write(FINISHED)
    await world.listed(run, state="success")
    await world.http.delete(f"/v1/runs/{run}")
    with pytest.raises(Fenced):
        await scribe.write(CALLED)


async def test_an_erased_run_is_not_started_again_by_its_key(world: World) -> None:
    key = {"Idempotency-Key": new_run()}
    started = await world.http.post("/v1/runs", json={"agent": "boss", "task": "x"}, headers=key)
    run = started.json()["id"]
    await world.ended_run(run)
    await world.http.delete(f"/v1/runs/{run}")
    again = await world.http.post("/v1/runs", json={"agent": "boss", "task": "x"}, headers=key)
    assert (again.status_code, again.json()["code"]) == (410, "run-erased")


async def test_a_session_whose_last_run_was_erased_begins_afresh(world: World) -> None:
    async def turn() -> str:
        body = {"agent": "boss", "task": "x", "session": "s-erased"}
        answer = await world.http.post("/v1/runs", json=body)
        assert answer.status_code == 202, answer.text
        run: str = answer.json()["id"]
        await world.ended_run(run, session="s-erased")
        return run

    first = await turn()
    await world.http.delete(f"/v1/runs/{first}")
    second = await turn()
    task = await world.history.task(second, second)
    assert task is not None
    assert task.continues is None


async def test_an_erasure_that_died_halfway_is_ended_by_whoever_comes_next(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """The record is there, its gateway is not: the next one removes the rest."""
    gateway = GatewayProcess(nats_server.url, tmp_path)
    try:
        async with with_boss(gateway) as world:
            run = new_run()
            blobs = await full_tree(world, run)
            await world.listed(run, state="success")
            assert gateway.stop() == 0
            erasure = NatsErasure(world.nc, world.topology, world.blobs)
            await erasure.record(Erased(id=f"{run}:erased", tree=run, run=run, at=time.time()), 0)
            await world.blobs.remove(blobs[0])
            gateway.start()
            assert await status(world, run) == 404
            # Its session was left before the record was written.
            sessions = NatsSessions(world.nc, world.topology)
            _, fence = await sessions.read("boss", "talk", None)
            await sessions.forget("boss", "talk", None, fence)
            await gone(world, run, *blobs)
    finally:
        gateway.kill()


async def test_a_run_whose_blobs_are_gone_already_is_read_as_gone(world: World) -> None:
    """Between the removal of blobs and that of the journal, for anyone who goes on from that run."""
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(f"{CANARY} " * 20_000))
    head = await jetstream.last(world.nc, world.topology.stream_of(run), world.topology.journal(run, run))
    assert head is not None
    await world.blobs.remove(json.loads(head.data)["ref"])
    with pytest.raises(BlobMissing):
        await world.journal.read(run, run)
    erasure = NatsErasure(world.nc, world.topology, world.blobs)
    await erasure.record(Erased(id=f"{run}:erased", tree=run, run=run, at=time.time()), 0)
    assert await world.journal.read(run, run) == []
    await gone(world, run)
