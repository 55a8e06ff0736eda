"""A run of thousands of entries, as the gateway shows it."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from cadre.adapters.nats.streams.shard_watch import ShardWatch
from cadre.client.client import AsyncClient
from cadre.delivery.codec import encode
from cadre.journal import events as ev
from cadre.ports import Stored
from cadre.protocol.topology import call_id
from cadre.protocol.usage import TokenUsage
from cadre_gateway.reading import lookup as lookup_module
from cadre_gateway.reading.detail import run_detail
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.problems import Problem
from cadre_gateway.routes import time_travel, tracing
from harness.patience import until
from integration.gateway_world import CALLED, FINISHED, GatewayProcess, World, new_run
from unit.inline_index import new_index

STEPS = 1_500
TEXT = "x" * 400


class LongRun(NamedTuple):
    run: str
    event_bytes: int


async def lookup_of(world: World) -> RunLookup:
    """A gateway's look-ups, with an index that has nothing."""
    watch = ShardWatch(world.nc, world.topology)
    return RunLookup(await new_index(), world.history, world.journal, world.erasure, watch)


@pytest.fixture
async def long_run(world: World) -> LongRun:
    run = new_run()
    scribe = world.scribe(run)
    size, n = 0, 0

    async def write(*events: ev.AnyEvent) -> None:
        nonlocal n, size
        n += 1
        size += len(encode(events))
        await scribe.write(*events, at=1_000.0 + n)

    await write(scribe.accepted(), CALLED)
    for step in range(1, STEPS + 1):
        call = call_id(run, step, 0)
        await write(
            ev.ModelAnswered(purpose="act", step=step, attempt=1, content=TEXT, usage=TokenUsage(5, 3)),
            ev.ToolCalled(call=call, tool="add", arguments={"a": step}),
        )
        await write(
            ev.ToolAnswered(call=call, tool="add", output=TEXT),
            ev.StepFinished(step=step),
            ev.ModelCalled(purpose="act", step=step + 1, attempt=1, cause="c"),
        )
    await write(FINISHED)
    await world.listed(run, state="success")
    return LongRun(run, size)


async def test_a_long_run_is_shown_in_little_memory_while_others_are_answered(
    world: World, gateway: GatewayProcess, long_run: LongRun
) -> None:
    before = gateway.peak_bytes()
    run = long_run.run
    answered = 0
    reading = asyncio.gather(
        world.http.get(f"/v1/runs/{run}"),
        world.http.get(f"/v1/runs/{run}", params={"full": "true"}),
        world.http.get(f"/v1/runs/{run}/trace"),
        world.http.post(f"/v1/runs/{run}/fork", json={"at": STEPS - 1, "max_steps": STEPS}),
    )

    async def one_more() -> bool:
        nonlocal answered
        answer = await world.http.get("/v1/agents")
        answered += answer.status_code == 200
        return reading.done()

    await until(one_more)
    shown, full, trace, forked = reading.result()
    assert forked.status_code == 202, forked.text
    assert [one.status_code for one in (shown, full, trace)] == [200, 200, 200], shown.text[:300]
    assert shown.json()["own_usage"]["steps"] == STEPS
    assert (shown.json()["output"], shown.json().get("memory")) == ({"answer": 42}, None)
    assert len(full.json()["memory"]) == STEPS + 2, "the task and the answer"
    assert len(trace.json()["spans"]) > 3 * STEPS
    # Each page of it lets others be answered.
    assert answered >= 5
    assert gateway.peak_bytes() - before < 20 * long_run.event_bytes
    verified = await world.http.get(f"/v1/runs/{run}/verify")
    assert verified.json()["entries"] == 2 * STEPS + 2
    assert gateway.peak_bytes() - before < 20 * long_run.event_bytes, "each entry is checked and let go"


async def test_a_run_of_too_many_bytes_is_not_replayed_here_and_the_answer_says_where(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await world.ended_run()
    lookup = await lookup_of(world)
    assert (await time_travel.replay(lookup, run, run_only=False)).entries == 2
    monkeypatch.setattr(time_travel, "MAX_REPLAYED_BYTES", 100)
    with pytest.raises(Problem, match="cadre replay --file FILE") as refused:
        await time_travel.replay(lookup, run, run_only=False)
    assert refused.value.status == 413


async def test_a_run_that_begins_and_ends_while_its_journal_is_asked_for_is_shown_with_its_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the stream has no leader: what was asked before the run began is answered once it is over."""
    read, run = world.history.lean_pages, ""

    async def late(*about: Any, **bounds: Any) -> AsyncIterator[list[Stored]]:
        nonlocal run
        if not run:
            run = about[0]
            await world.ended_run(run)
            return
        async for page in read(*about, **bounds):
            yield page

    monkeypatch.setattr(world.history, "lean_pages", late)
    detail = await run_detail(await lookup_of(world), new_run(), full=False)
    assert (detail.state, detail.output) == ("success", {"answer": 42})


async def test_a_trace_of_too_many_spans_is_refused_with_its_reason(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await world.ended_run()
    monkeypatch.setattr(tracing, "MAX_SPANS", 1)
    lookup = await lookup_of(world)
    with pytest.raises(Problem, match="more than 1 spans") as refused:
        await tracing.spans_of(lookup, run, run, now=time.time(), content=False)
    assert (refused.value.status, refused.value.code) == (422, "trace-too-long")


async def test_a_run_and_its_trace_are_read_in_pages(world: World) -> None:
    run, children = new_run(), 3
    root = world.scribe(run)
    await root.write(root.accepted(), CALLED)
    for n in range(children):
        below = world.scribe(call_id(run, 1, n), "helper", run)
        await below.write(below.accepted())
        await below.write(FINISHED)
    await root.write(FINISHED)
    await world.listed(run, state="success")

    async def pages(path: str, key: str, limit: int, **more: str) -> list[list[Any]]:
        found, after = [], 0
        while after is not None:
            answer = await world.http.get(path, params={**more, "limit": limit, "after": after})
            assert answer.status_code == 200, answer.text
            found.append(answer.json()[key])
            after = answer.json()["next"]
        return found

    shown = (await world.http.get(f"/v1/runs/{run}")).json()
    assert ("next" in shown, len(shown["children"])) == (False, children)
    paged = await pages(f"/v1/runs/{run}", "children", 2)
    assert [[one["id"] for one in page] for page in paged] == [
        [call_id(run, 1, 0), call_id(run, 1, 1)],
        [call_id(run, 1, 2)],
    ]
    whole = (await world.http.get(f"/v1/runs/{run}", params={"full": "true"})).json()["memory"]
    steps = await pages(f"/v1/runs/{run}", "memory", 1, full="true")
    assert [one for page in steps for one in page] == whole
    spans = (await world.http.get(f"/v1/runs/{run}/trace")).json()["spans"]
    of_pages = await pages(f"/v1/runs/{run}/trace", "spans", 2)
    assert [len(page) for page in of_pages[:-1]] == [2] * (len(of_pages) - 1)
    assert sorted(one["span"] for page in of_pages for one in page) == sorted(one["span"] for one in spans)
    for path in (f"/v1/runs/{run}?after=1", f"/v1/runs/{run}/trace?after=1", f"/v1/runs/{run}?limit=0"):
        assert (await world.http.get(path)).status_code == 422
    assert (await world.http.get(f"/v1/runs/{run}/trace?format=otlp&limit=5")).status_code == 422
    async with AsyncClient(str(world.http.base_url)) as client:
        detail = await client.get_run(run, limit=2, after=2)
        assert (len(detail.children), detail.next) == (1, None)
        page = await client.attach(run).trace(limit=1)
        assert (len(page.spans), page.next) == (1, 1)


async def test_a_reader_of_a_long_run_whose_turn_does_not_come_hears_why(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await world.ended_run()
    monkeypatch.setattr(lookup_module, "_PAGES_WITHOUT_TURN", 1)
    monkeypatch.setattr(lookup_module, "_TURN_SECONDS", 0.1)
    lookup = await lookup_of(world)
    async with lookup.pages_of_tree(run) as first, lookup.pages_of_tree(run) as second:
        for pages in (first, second):
            assert [len(page) async for page in pages] == [2]
        with pytest.raises(Problem, match="other long runs") as refused:
            await run_detail(lookup, run, full=False)
    assert (refused.value.status, refused.value.code) == (503, "reading-busy")
    assert (await run_detail(lookup, run, full=False)).output == {"answer": 42}
