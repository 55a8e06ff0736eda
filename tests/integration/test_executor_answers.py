"""Tests of what a tool executor answers, how it stops, and how several share the work."""

import asyncio
import json
from uuid import uuid4

import msgspec

from cadre.adapters.nats.connection.connect import settled
from cadre.adapters.nats.registry import NatsRegistry
from cadre.adapters.nats.streams import jetstream
from cadre.delivery.codec import encode
from harness.patience import patience
from harness.texts import holds
from integration.executor_bench import Bench
from integration.service_bench import failure

# --- what goes wrong inside


async def test_a_malformed_call_becomes_a_dead_letter_and_the_worker_lives_on(bench: Bench) -> None:
    process = await bench.start()
    bad = [
        (b"{not json", "not a message"),
        (encode(msgspec.structs.replace(bench.new_call("divide"), tool="pay")), "in the queue of 'divide'"),
        (b'{"type":"tool_dream","v":1}', "tool_dream"),
    ]
    dead = await bench.nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    await settled(bench.nc)
    for data, reason in bad:
        call = bench.new_call("divide")
        await jetstream.append(bench.nc, bench.topology.call("divide", "boss", call.tree, call.id), data)
        result = await bench.answer(call)
        assert failure(result).type == "Poisoned"
        assert reason in failure(result).message
        advisory = json.loads((await dead.next_msg(timeout=patience())).data)
        assert reason in advisory["reason"]
    held = await jetstream.last(
        bench.nc,
        bench.topology.dead_stream,
        f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{advisory['stream']}.{advisory['consumer']}",
    )
    assert held is not None
    assert (await bench.ask("divide", a=6, b=3)).output == 2.0
    assert process.returncode is None


async def test_failures_are_answers(bench: Bench) -> None:
    await bench.start()
    result = await bench.ask("divide", a=1, b=0)
    assert failure(result).type == "AgentToolExecutionError"
    assert failure(result).message == (
        """Error executing tool 'divide' with arguments {"a":1,"b":0}: ZeroDivisionError: division by zero"""
    )
    assert result.executor == "executor-0"

    result = await bench.ask("divide", a="1", b=0)
    assert failure(result).type == "AgentToolCallError"
    assert "argument 'a': " in failure(result).message

    for name, rest in (
        ("slow", ""),
        ("slow_in_thread", "; what it does in its thread may still take effect"),
    ):
        result = await bench.ask(name)
        assert failure(result).type == "AgentToolExecutionError"
        assert failure(result).message.endswith(f"TimeoutError: no result within 0.2 s{rest}")

    result = await bench.ask("odd", kind="mute")
    assert result.error is None
    assert holds(str(result.output), "Mute", "ValueError")


async def test_outputs_always_fit_into_json_and_a_message(bench: Bench) -> None:
    await bench.start()
    assert (await bench.ask("odd", kind="alone")).output == "odd"
    assert (await bench.ask("odd", kind="inside")).output == [1, {"x": "odd"}]
    assert (await bench.ask("odd", kind="key")).output == {"(1, 2)": 3}
    assert (await bench.ask("odd", kind="cycle")).output == "[[...]]"
    assert (await bench.ask("odd", kind="surrogate")).output == "?"

    text = "äbc" * 100_000
    result = await bench.ask("repeat", text="äbc", times=100_000)
    assert result.blob is not None
    assert (await bench.blobs.get(result.blob)).decode() == text
    assert isinstance(result.output, str)
    assert len(result.output.encode()) < 66_000
    assert result.output.startswith("äbcäbc")
    assert result.output.endswith("äbcäbc")
    assert f"the whole is {result.blob}" in result.output

    fits = await bench.ask("repeat", text="a", times=64 * 1024)
    assert (fits.blob, fits.output) == (None, "a" * 64 * 1024)


# --- stopping


async def test_an_interrupt_reaches_the_tools_of_its_run_and_below(bench: Bench) -> None:
    await bench.start()
    tree = uuid4().hex
    polite = bench.new_call("heeds", {"port": bench.port}, tree=tree)
    child = f"{tree}_1_1"
    stubborn = msgspec.structs.replace(bench.staged_call("pay"), tree=tree, run=child, id=f"{child}_1_0")
    other = bench.staged_call("pay")
    visits = {}
    for call in (polite, stubborn, other):
        await bench.send(call)
        visits[call.id] = await bench.visit()
    await bench.bus.interrupt(tree, tree)
    assert (await bench.answer(polite)).output == "stopped in time"
    result = await bench.answer(stubborn)
    assert failure(result).type == "Interrupted"
    assert "'pay'" in failure(result).message
    await visits[other.id].let_go("undisturbed")
    assert (await bench.answer(other)).output == "undisturbed"


async def test_told_to_stop_it_finishes_what_is_at_work(bench: Bench) -> None:
    process = await bench.start()
    call = bench.staged_call("pay")
    await bench.send(call)
    visit = await bench.visit()
    process.terminate()
    later = bench.new_call("mark", {"folder": str(bench.folder)})
    await visit.let_go("finished")
    assert (await bench.answer(call)).output == "finished"
    assert await asyncio.wait_for(process.wait(), patience()) == 0
    await bench.send(later)
    assert bench.effects_of(later) == 0
    await bench.start()
    assert (await bench.answer(later)).output == "marked"


async def test_what_does_not_finish_in_time_goes_back(bench: Bench) -> None:
    process = await bench.start(CADRE_DRAIN_SECONDS="0.3")
    reading, stuck = bench.staged_call("look"), bench.new_call("block", {"port": bench.port})
    for call in (reading, stuck):
        await bench.send(call)
        await bench.visit()
    process.terminate()
    # Not even a thread that never returns keeps the process.
    await asyncio.wait_for(process.wait(), patience())
    await bench.start()
    await (await bench.visit()).let_go("read after all")
    assert (await bench.answer(reading)).output == "read after all"
    result = await bench.answer(stuck)
    assert failure(result).type == "Interrupted"


async def test_a_thread_beyond_its_time_keeps_its_slot_but_not_the_process(bench: Bench) -> None:
    process = await bench.start(CADRE_DRAIN_SECONDS="600")
    first, second = (bench.new_call("outlast", {"port": bench.port}) for _ in range(2))
    await bench.send(first)
    stuck = await bench.visit()
    await bench.send(second)
    result = await bench.answer(first)
    assert "TimeoutError: no result within 0.2 s" in failure(result).message
    # Others are served meanwhile; anyone who had been let in next to the thread would have come before.
    for _ in range(3):
        other = bench.staged_call("look")
        await bench.send(other)
        visit = await bench.visit()
        assert visit.call == other.id
        await visit.let_go()
        await bench.answer(other)
    await stuck.let_go("late")
    assert (await bench.visit()).call == second.id
    assert (await bench.answer(second)).error is not None
    process.terminate()
    assert await asyncio.wait_for(process.wait(), patience()) == 0


# --- many at once


async def test_two_executors_share_the_load_and_are_registered(bench: Bench) -> None:
    processes = [await bench.start("--concurrency", "2") for _ in range(2)]
    registry = NatsRegistry(bench.nc, bench.topology)
    await registry.start()
    found = [presence for presence in registry.presences() if presence.tool and presence.tool.name == "pay"]
    assert {presence.pid for presence in found} == {process.pid for process in processes}
    await registry.stop()

    calls = [bench.staged_call("pay") for _ in range(6)]
    for call in calls:
        await bench.send(call)
    at_work = [await bench.visit() for _ in range(4)]
    assert sorted(visit.pid for visit in at_work) == sorted(2 * [process.pid for process in processes])
    assert bench.visits.empty()
    for visit in at_work:
        await visit.let_go()
    for _ in range(2):
        await (await bench.visit()).let_go()
    for call in calls:
        assert (await bench.answer(call)).output == "done"
        assert bench.effects_of(call) == 1


async def test_computing_does_not_silence_the_process(bench: Bench) -> None:
    for _ in range(2):
        await bench.start()
    # Longer than the ack wait: without signs of life the other executor would have got the call as well.
    call = bench.new_call("compute", {"folder": str(bench.folder), "seconds": 5.0})
    await bench.send(call)
    result = await bench.answer(call)
    assert result.error is None
    assert bench.effects_of(call) == 1
