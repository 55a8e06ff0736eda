"""Tool executors really killed, and calls said twice: an effect happens at most once."""

import asyncio
import contextlib
import signal
from typing import Any

import pytest

from cadre.adapters.nats.queues.queue import NatsDelivery, Queue
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.quarantine import MAX_CRASHES_ALONE, SUSPECT_CALL_AFTER_DELIVERIES
from cadre.engine.commands import Revoke
from cadre.errors import Fenced, RetryableError
from cadre.protocol.messages import EffectResult, ErrorInfo, ToolCall, ToolResult
from cadre.protocol.topology import result_id
from harness.nats_server import NatsServer
from harness.patience import patience, until
from harness.texts import holds
from integration.executor_bench import HERE, Bench, Visit, kill
from integration.service_bench import failure

# --- killed in the middle


async def test_killed_mid_tool(bench: Bench) -> None:
    first = await bench.start()
    calls = {name: bench.staged_call(name) for name in ("pay", "put", "look")}
    for call in calls.values():
        await bench.send(call)
    for _ in calls:
        assert (await bench.visit()).deliveries == 1
    await kill(first)
    second = await bench.start()

    again = [await bench.visit() for _ in range(2)]
    assert {(visit.tool, visit.call, visit.deliveries, visit.pid) for visit in again} == {
        ("put", calls["put"].id, 2, second.pid),
        ("look", calls["look"].id, 2, second.pid),
    }
    for visit in again:
        await visit.let_go("second time")

    answers = {name: await bench.answer(call) for name, call in calls.items()}
    assert answers["put"].output == answers["look"].output == "second time"
    error = answers["pay"].error
    assert error is not None
    assert error.type == "Interrupted"
    assert holds(error.message, "executor-0", "'pay'")
    assert {name: bench.effects_of(call) for name, call in calls.items()} == {"pay": 1, "put": 2, "look": 2}

    # That the outcome is unknown is settled: asked again, the answer is the same.
    await bench.publish(calls["pay"])
    assert await bench.answer(calls["pay"]) == answers["pay"]
    assert bench.effects_of(calls["pay"]) == 1


@pytest.mark.parametrize(
    ("point", "effects", "outcome"),
    [("claim", 0, "Interrupted"), ("settle", 1, "marked"), ("send", 1, "marked")],
)
async def test_killed_between_the_steps(bench: Bench, point: str, effects: int, outcome: str) -> None:
    dying = await bench.start(script=str(HERE / "dying_executor.py"), CRASH_AT=point)
    call = bench.new_call("mark", {"folder": str(bench.folder)})
    await bench.send(call)
    await asyncio.wait_for(dying.wait(), patience())
    assert dying.returncode == -signal.SIGKILL
    if point == "send":
        assert (await bench.answer(call)).output == "marked"
    await bench.start()
    result = await bench.answer(call)
    assert (result.error.type if result.error else result.output) == outcome
    assert bench.effects_of(call) == effects
    await until(lambda: bench.all_acked("mark"))


async def test_a_call_that_kills_its_executors_is_given_up_and_its_neighbour_is_not(bench: Bench) -> None:
    deadly, innocent = bench.new_call("deadly"), bench.staged_call("look")
    for call in (deadly, innocent):
        await _worn_out(bench, call)
    deaths = 0
    while not bench.unread(deadly):
        executor = await bench.start(may_die=True)
        answered = asyncio.create_task(bench.answer(deadly))
        died = asyncio.create_task(executor.wait())
        await asyncio.wait({answered, died}, timeout=patience(), return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if answered.done():
            break
        answered.cancel()
        deaths += 1
        assert deaths <= 1 + MAX_CRASHES_ALONE
    result = answered.result()
    assert deaths == 1 + MAX_CRASHES_ALONE, "tried with its neighbour once, then alone"
    assert failure(result).code == "poisoned"
    assert str(MAX_CRASHES_ALONE) in failure(result).message
    await until(lambda: bench.all_acked("deadly"))
    while (visit := await bench.visit()).pid != executor.pid:
        pass  # those of the dead
    await visit.let_go("seen")
    assert (await bench.answer(innocent)).output == "seen"


async def test_a_deadly_call_takes_few_processes_along(bench: Bench) -> None:
    """Kubernetes has each one wait twice as long for its next start, with all tools that it serves."""
    deadly = bench.new_call("deadly")
    await bench.publish(deadly)
    deaths = 0
    while not bench.unread(deadly):
        executor = await bench.start(may_die=True)
        answered = asyncio.create_task(bench.answer(deadly))
        died = asyncio.create_task(executor.wait())
        await asyncio.wait({answered, died}, timeout=patience(), return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if answered.done():
            break
        answered.cancel()
        deaths += 1
        assert deaths <= 5
    assert failure(answered.result()).code == "poisoned"


async def _worn_out(bench: Bench, call: ToolCall) -> None:
    """Published, and handed back as often as makes it a suspect: what many restarts look like to the next executor."""
    worn = asyncio.Event()

    async def hand_back(delivery: NatsDelivery) -> None:
        if delivery.deliveries == SUSPECT_CALL_AFTER_DELIVERIES:
            worn.set()
            await asyncio.Event().wait()
        await delivery.nak()

    queue = Queue(
        bench.nc,
        bench.topology.stream_of(call.tree),
        bench.topology.tool_consumer(call.tool),
        bench.topology.call_filter(bench.topology.shard(call.tree), call.tool),
        hand_back,
        limit=1,
    )
    await queue.start()
    await bench.publish(call)
    await asyncio.wait_for(worn.wait(), patience())
    await queue.drain(0)


async def test_never_more_at_once_than_allowed(bench: Bench) -> None:
    """Four for the process (its variable), two of them for a tool that says so."""
    await bench.start("--concurrency", "4")
    narrow = [bench.staged_call("narrow") for _ in range(10)]
    wide = [bench.staged_call("look") for _ in range(10)]
    for call in (*narrow, *wide):
        await bench.send(call)
    left = {"narrow": 10, "look": 10}
    inside: list[Visit] = []
    while any(left.values()):
        # As many as are allowed come in without anybody leaving, and no more.
        while len(inside) < min(4, min(2, left["narrow"]) + left["look"]):
            inside.append(await bench.visit())
        assert bench.visits.empty()
        assert sum(visit.tool == "narrow" for visit in inside) <= 2
        visit = inside.pop(0)
        left[visit.tool] -= 1
        await visit.let_go()
    for call in (*narrow, *wide):
        assert (await bench.answer(call)).output == "done"


async def test_a_result_outlives_the_server(bench: Bench, nats_server: NatsServer) -> None:
    await bench.start()
    call = bench.staged_call("pay")
    await bench.send(call)
    visit = await bench.visit()
    nats_server.kill()
    await visit.let_go("paid")
    nats_server.start()
    inbox = bench.topology.inbox("boss", "pay", call.tree, call.run)

    async def answered() -> bool:
        with contextlib.suppress(RetryableError):
            return await jetstream.last(bench.nc, bench.topology.stream_of(call.tree), inbox) is not None
        return False

    await until(answered)
    effect = await bench.effects.read(bench.new_claim(call))
    assert effect is not None
    assert effect.result is not None
    assert effect.result.output == "paid"
    assert bench.effects_of(call) == 1


# --- said twice


async def test_a_second_publication_is_dropped_while_the_first_is_at_work(bench: Bench) -> None:
    await bench.start()
    call = bench.staged_call("pay")
    await bench.publish(call)
    visit = await bench.visit()
    second = await bench.publish(call)
    stream = bench.topology.stream_of(call.tree)
    info = f"CONSUMER.INFO.{stream}.{bench.topology.tool_consumer('pay')}"

    async def only_the_first_is_pending() -> bool:
        state = await jetstream.api(bench.nc, info)
        return bool(state["delivered"]["stream_seq"] == second and state["num_ack_pending"] == 1)

    await until(only_the_first_is_pending)
    await visit.let_go("once")
    assert (await bench.answer(call)).output == "once"
    await until(lambda: bench.all_acked("pay"))
    assert bench.unread(call) == 0
    assert bench.effects_of(call) == 1

    # A third one, after the end: the stored result is sent again.
    await bench.publish(call)
    assert (await bench.answer(call)).output == "once"
    assert bench.effects_of(call) == 1


async def test_a_stored_result_is_sent_without_running_the_tool(bench: Bench) -> None:
    call = bench.staged_call("pay")
    result = ToolResult(
        id=f"{call.id}:result",
        tree=call.tree,
        run=call.run,
        at=1.0,
        call=call.id,
        tool="pay",
        output={"paid": 5},
    )
    claim = bench.new_claim(call)
    seq = await bench.effects.claim(claim)
    with pytest.raises(Fenced):
        await bench.effects.claim(claim)
    settled = EffectResult(
        id=f"{call.id}:effect",
        tree=call.tree,
        run=call.run,
        at=2.0,
        claim=claim,
        claim_seq=seq,
        result=result,
    )
    await bench.effects.settle(settled)
    with pytest.raises(Fenced):
        await bench.effects.settle(settled)
    assert await bench.effects.read(claim) == (claim, seq, result)

    await bench.start()
    await bench.send(call)
    assert await bench.answer(call) == result
    assert bench.effects_of(call) == 0


def revocation(call: ToolCall) -> EffectResult:
    """Return what the worker of an ended run writes for a call that is still out."""
    error = ErrorInfo("cancelled", "not begun: the run ended")
    place: dict[str, Any] = {"tree": call.tree, "run": call.run, "at": 1.0, "tool": call.tool}
    settled = ToolResult(id=result_id(call.id), call=call.id, error=error, **place)
    return Revoke(settled).effect(call.agent)


async def test_a_call_whose_run_has_ended_is_not_run_again_after_its_executors_death(bench: Bench) -> None:
    first = await bench.start()
    calls = {name: bench.staged_call(name) for name in ("put", "look")}
    for call in calls.values():
        await bench.send(call)
        await bench.visit()
    await kill(first)
    for call in calls.values():
        await bench.bus.revoke(revocation(call))
    await bench.start()
    answers = {name: failure(await bench.answer(call)).type for name, call in calls.items()}
    assert answers == {"put": "Interrupted", "look": "Cancelled"}
    assert {name: bench.effects_of(call) for name, call in calls.items()} == {"put": 1, "look": 1}
    for name in calls:
        await until(lambda name=name: bench.all_acked(name))  # type: ignore[misc]


async def test_what_an_executor_is_at_while_its_call_is_revoked_is_told_as_it_was(bench: Bench) -> None:
    await bench.start()
    call = bench.staged_call("put")
    await bench.send(call)
    visit = await bench.visit()
    await bench.bus.revoke(revocation(call))
    await visit.let_go("done")
    assert (await bench.answer(call)).output == "done"
    await until(lambda: bench.all_acked("put"))
