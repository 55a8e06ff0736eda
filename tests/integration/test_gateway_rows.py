"""Rows of a real gateway: what each entry changes, resuming, runs below, several followers, entries whole."""

import asyncio

import msgspec

from cadre.journal import events as ev
from cadre.journal.entry import FAN
from cadre.protocol.topology import call_id
from cadre.views.rows import Row, RowsChanged
from harness.patience import patience
from integration.gateway_world import CALLED, FINISHED, SseEvent, World, new_run, sse_events

ROWS = {"view": "rows"}
LONG = "x" * 5000


def changes(found: list[SseEvent]) -> list[RowsChanged]:
    return [msgspec.convert(one.data, RowsChanged) for one in found if one.name == "rows"]


def latest(found: list[SseEvent]) -> dict[str, Row]:
    return {row.key: row for changed in changes(found) for row in changed.rows}


async def test_rows_are_history_then_live_then_the_end(world: World) -> None:
    run = new_run()
    child = call_id(run, 1, 0)
    root, member = world.scribe(run), world.scribe(child, "helper", run)
    begun = await root.write(root.accepted(), CALLED)
    found: list[SseEvent] = []
    async with (
        world.http.stream("GET", f"/v1/runs/{run}/events", params=ROWS) as answer,
        asyncio.timeout(patience()),
    ):
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for one in sse_events(answer):
            found.append(one)
            if len(found) == 1:
                await member.write(member.accepted())
                await root.write(FINISHED)
    assert [one.name for one in found] == ["rows", "rows", "rows", "end"]
    assert found[0].mark == changes(found)[0].seq == begun
    assert found[-1].data == {"run": run, "state": "success"}
    rows = latest(found)
    assert (rows[f"run:{run}"].state, rows[f"run:{child}"].state) == ("ok", "dropped")
    assert [line.event for one in changes(found) for line in one.lines] == [
        "run.accepted",
        "model.called",
        "run.accepted",
        "run.finished",
    ]


async def test_a_client_that_comes_back_gets_what_has_changed_since(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    first = await scribe.write(scribe.accepted())
    second = await scribe.write(CALLED)
    last = await scribe.write(FINISHED)
    whole = await world.read(run, params=ROWS)
    resumed = await world.read(run, params=ROWS, headers={"Last-Event-ID": str(first)})
    assert [one.seq for one in changes(resumed)] == [second, last]
    assert latest(resumed) | {} == {key: latest(whole)[key] for key in latest(resumed)}
    behind = await world.read(run, params={**ROWS, "after": last})
    assert [one.name for one in behind] == ["end"]


async def test_a_run_below_is_followed_alone(world: World) -> None:
    run = new_run()
    child = call_id(run, 1, 0)
    root, member = world.scribe(run), world.scribe(child, "helper", run)
    await root.write(root.accepted(), CALLED)
    await member.write(member.accepted(), CALLED)
    await root.write(ev.StepFinished(step=1))
    await member.write(FINISHED)
    found = await world.read(child, params=ROWS)
    assert {row.run for row in latest(found).values()} == {child}
    assert found[-1].data == {"run": child, "state": "success"}


async def test_a_second_follower_gets_the_same_rows(world: World) -> None:
    """It comes while another one follows: both read the same story, the second one from its middle."""
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(), CALLED)
    first: list[SseEvent] = []
    async with (
        world.http.stream("GET", f"/v1/runs/{run}/events", params=ROWS) as answer,
        asyncio.timeout(patience()),
    ):
        events = sse_events(answer)
        first.append(await anext(events))
        second = asyncio.create_task(world.read(run, params=ROWS))
        await scribe.write(ev.StepFinished(step=1))
        first.append(await anext(events))
        await scribe.write(FINISHED)
        first += [one async for one in events]
        other = await second
    assert latest(other) == latest(first)
    assert [line for one in changes(other) for line in one.lines] == [
        line for one in changes(first) for line in one.lines
    ]
    assert other[-1].data == first[-1].data == {"run": run, "state": "success"}


async def test_a_text_that_was_cut_is_whole_in_its_entry(world: World) -> None:
    run = new_run()
    call = call_id(run, 1, 0)
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(), CALLED)
    await scribe.write(ev.ToolCalled(call=call, tool="add", arguments={"text": LONG}))
    await scribe.write(ev.ToolAnswered(call=call, tool="add", output=LONG))
    await scribe.write(FINISHED)
    row = latest(await world.read(run, params=ROWS))[f"call:{call}"]
    assert len(row.brief) < 1000
    (first, _), (last, _) = row.events
    asked = (await world.http.get(f"/v1/runs/{run}/entries/{first}")).json()
    told = (await world.http.get(f"/v1/runs/{run}/entries/{last}")).json()
    assert (asked["run"], asked["n"], told["seq"]) == (run, first, row.seq)
    assert asked["events"][0]["arguments"] == {"text": LONG}
    assert (told["events"][0]["type"], told["events"][0]["output"]) == ("tool.answered", LONG)
    for path, status, code in (
        (f"/v1/runs/{run}/entries/99", 404, "unknown-entry"),
        (f"/v1/runs/{new_run()}/entries/1", 404, "unknown-run"),
        (f"/v1/runs/{run}/entries/0", 422, "invalid-request"),
    ):
        refused = await world.http.get(path)
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    wrong = await world.http.get(f"/v1/runs/{run}/events", params={"view": "rose"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-request")


async def test_each_entry_of_a_run_that_is_longer_than_a_block_is_found(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    written = [await scribe.write(scribe.accepted())]
    written += [await scribe.write(ev.SignalReceived(name=f"s{n}", payload=n)) for n in range(2, 2 * FAN + 4)]
    for n, seq in enumerate(written, start=1):
        found = (await world.http.get(f"/v1/runs/{run}/entries/{n}")).json()
        assert (found["n"], found["seq"], found["run"]) == (n, seq, run)
    behind = await world.http.get(f"/v1/runs/{run}/entries/{len(written) + 1}")
    assert (behind.status_code, behind.json()["code"]) == (404, "unknown-entry")


async def test_an_entry_of_an_erased_run_is_gone(world: World) -> None:
    run = new_run()
    scribe = world.scribe(run)
    await scribe.write(scribe.accepted(), CALLED)
    await scribe.write(FINISHED)
    assert (await world.http.get(f"/v1/runs/{run}/entries/1")).status_code == 200
    assert (await world.http.delete(f"/v1/runs/{run}")).status_code in (200, 202, 204)
    gone = await world.http.get(f"/v1/runs/{run}/entries/1")
    assert (gone.status_code, gone.json()["code"]) == (404, "unknown-run")
