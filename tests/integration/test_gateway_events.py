"""Event streams of a real gateway: history, live, resuming, deltas, slow readers."""

import asyncio

from cadre.journal import events as ev
from cadre.protocol.deltas import Delta
from cadre.protocol.messages import (
    ErrorInfo,
)
from cadre.protocol.topology import call_id, run_id_of
from harness.patience import patience
from integration.gateway_world import CALLED, FINISHED, SseEvent, World, new_run, sse_events

# --- events


async def test_events_are_history_then_live_then_the_end(world: World) -> None:
    run = new_run()
    child = call_id(run, 1, 0)
    root, member = world.scribe(run), world.scribe(child, "helper", run)
    begun = await root.write(root.accepted(), CALLED)
    found: list[SseEvent] = []
    async with world.http.stream("GET", f"/v1/runs/{run}/events") as answer, asyncio.timeout(patience()):
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")
        async for one in sse_events(answer):
            found.append(one)
            if len(found) == 2:
                await member.write(member.accepted())
                await root.write(FINISHED)
    assert [one.name for one in found] == [
        "run.accepted",
        "model.called",
        "run.accepted",
        "run.finished",
        "end",
    ]
    assert [one.mark for one in found[:2]] == [None, begun]
    assert found[2].data["run"] == child
    assert found[2].data["parent"] == run
    assert found[3].data["event"]["output"] == {"answer": 42}
    assert set(found[0].data) == {"seq", "n", "run", "parent", "agent", "at", "event"}
    assert found[-1].data == {"run": run, "state": "success"}

    of_child = await world.read(child, count=1)
    assert of_child[0].data["run"] == child


async def test_a_client_resumes_at_the_entry_it_has_not_seen_whole(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    first = await scribe.write(scribe.accepted())
    second = await scribe.write(CALLED, ev.StepFinished(step=1))
    last = await scribe.write(FINISHED)
    cut = await world.read(run, count=2)
    assert [one.mark for one in cut] == [first, None], "lost within the second entry"

    resumed = await world.read(run, headers={"Last-Event-ID": str(first)})
    assert [(one.name, one.mark) for one in resumed] == [
        ("model.called", None),
        ("step.finished", second),
        ("run.finished", last),
        ("end", None),
    ]
    assert [one.name for one in await world.read(run, params={"after": second})] == ["run.finished", "end"]
    assert [one.name for one in await world.read(run, headers={"Last-Event-ID": str(last)})] == ["end"]
    beyond = await world.read(run, headers={"Last-Event-ID": str(10**12)})
    assert [one.name for one in beyond] == ["end"]
    for place in ("-1", "9" * 23, "x"):
        wrong = await world.http.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": place})
        assert wrong.status_code == 422
        wrong = await world.http.get(f"/v1/runs/{run}/events", params={"after": place})
        assert wrong.status_code == 422


async def test_deltas_come_in_between_without_an_id(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(), CALLED)
    found: list[SseEvent] = []
    async with world.http.stream("GET", f"/v1/runs/{run}/events") as answer, asyncio.timeout(patience()):
        async for one in sse_events(answer):
            found.append(one)
            if one.name == "model.called":
                delta = Delta(run=run, agent="boss", step=1, attempt=1, text="Hel\nlo", seq=1, purpose="act")
                await world.bus.tell(run, delta)
            if one.name == "delta":
                await scribe.write(FINISHED)
    assert [one.name for one in found] == ["run.accepted", "model.called", "delta", "run.finished", "end"]
    assert (found[2].mark, found[2].data["text"]) == (None, "Hel\nlo")


async def test_an_entry_too_large_for_a_message_is_told_whole(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted("x" * 400_000))
    await scribe.write(FINISHED)
    found = await world.read(run)
    assert len(found[0].data["event"]["task"]["task"]) == 400_000
    assert len((await world.listed(run, state="success"))["task"]) == 200


async def test_a_reader_slower_than_the_runs_loses_nothing(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted())
    text = "y" * 8_000
    refused = ev.CallRefused(call="c", name=text, error=ErrorInfo("tool-failed", text))
    total = 3000
    marks = []
    async with world.http.stream("GET", f"/v1/runs/{run}/events") as answer, asyncio.timeout(patience()):
        stream = sse_events(answer)
        await anext(stream)
        # No one reads meanwhile: sockets and the gateway's buffer fill up.
        for _ in range(total):
            await scribe.write(refused)
        await scribe.write(FINISHED)
        await world.listed(run, state="success")
        async for one in stream:
            if one.mark is not None:
                marks.append(one.mark)
    assert len(marks) == total + 1
    assert marks == sorted(set(marks))


async def test_a_run_that_ends_while_its_stream_opens_is_told_whole(world: World) -> None:
    for _ in range(80):
        key = new_run()
        async with world.http.stream(
            "POST",
            "/v1/runs",
            json={"agent": "boss", "task": "x", "stream": True},
            headers={"Idempotency-Key": key},
        ) as answer:
            await world.finished_run(run_id_of("boss", "", key))
            names = [one.name async for one in sse_events(answer)]
        assert names == ["run.accepted", "model.called", "run.finished", "end"]
