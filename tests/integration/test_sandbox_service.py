"""Sandboxes on a real bus: asked for code, killed within and between its steps, interrupted, drained, misused."""

import asyncio
import os
import signal
import time

from cadre.delivery.codec import encode
from cadre.protocol.code import CodeLimits, CodeRequest
from cadre.protocol.messages import CodeFinished, CodeYielded
from harness.patience import patience, until
from integration.sandbox_bench import Bench
from integration.service_bench import failure, finished, yielded

LOOP = """
seen = [look(what) for what in ["a", "b", "c"]]
", ".join(seen)
"""
LONG = "import time\ntime.sleep(60)"


async def test_code_is_run_and_goes_on_block_after_block(bench: Bench) -> None:
    sandbox = await bench.start()
    first = bench.block("x = 20\nprint('so')")
    answer = finished(await bench.ask(first))
    assert (answer.logs, answer.error, answer.sandbox) == ("so\n", None, sandbox.name)
    second = finished(
        await bench.ask(bench.block("final_answer(x + 1)", run=first.run, step=2, snapshot=answer.snapshot))
    )
    assert (second.output, second.is_final_answer) == (21, True)
    await until(bench.all_acked)
    status, said = await bench.readiness(sandbox)
    assert (status, said["status"], said["pool"], said["tier"]) == (200, "ready", "default", answer.tier)


async def test_calls_of_the_code_come_to_the_run_and_their_results_to_the_code(bench: Bench) -> None:
    await bench.start()
    call = bench.block(LOOP)
    for number, what in enumerate("abc"):
        answer = yielded(await bench.ask(call))
        assert (answer.exchange, answer.calls) == (number, [CodeRequest("look", {"what": what})])
        call = bench.reply(call, answer, what.upper())
    done = finished(await bench.ask(call))
    assert done.output == "A, B, C"


async def test_what_is_too_large_for_a_message_travels_all_the_same(bench: Bench) -> None:
    await bench.start()
    call = bench.block("look('a' * 400_000)", limits=CodeLimits(output_chars=1000))
    answer = yielded(await bench.ask(call))
    assert len(answer.calls[0].arguments["what"]) == 400_000
    done = finished(await bench.ask(bench.reply(call, answer, "b" * 400_000)))
    assert len(done.output) == 400_000
    assert len(done.text) < 1200


# --- killed


async def test_killed_while_the_code_waits(bench: Bench) -> None:
    """Each time the block is replayed elsewhere, with what is recorded."""
    sandbox = await bench.start()
    call = bench.block(LOOP)
    answer = await bench.ask(call)
    for what, then in (("a", "b"), ("b", "c"), ("c", "")):
        await sandbox.kill()
        call = bench.reply(call, answer, what.upper())
        await bench.send(call)  # no one is there: it waits
        sandbox = await bench.start()
        answer = await bench.answer(call)
        assert answer.sandbox == sandbox.name
        if isinstance(answer, CodeYielded):
            assert answer.calls == [CodeRequest("look", {"what": then})]
    assert isinstance(answer, CodeFinished)
    assert answer.output == "A, B, C"


async def test_killed_while_the_code_runs(bench: Bench) -> None:
    first = await bench.start()
    call = bench.block("import time\ntime.sleep(1)\n'slept'")
    await bench.send(call)
    await bench.at_work()
    await first.kill()
    second = await bench.start()
    answer = finished(await bench.answer(call))
    assert (answer.output, answer.sandbox) == ("slept", second.name)
    await until(bench.all_acked)


async def test_killed_between_two_blocks(bench: Bench) -> None:
    first, second = await bench.start(), await bench.start()
    block = bench.block("def double(n):\n    return 2 * n\nx = double(4)")
    answer = finished(await bench.ask(block))
    await (first if answer.sandbox == first.name else second).kill()
    after = finished(await bench.ask(bench.block("double(x)", run=block.run, step=2, snapshot=answer.snapshot)))
    assert after.output == 16
    assert after.sandbox != answer.sandbox


async def test_nothing_is_left_of_a_sandbox_that_was_killed(bench: Bench) -> None:
    sandbox = await bench.start()
    await bench.send(bench.block(LONG))
    await bench.at_work()
    children = sandbox.children()
    assert children
    await sandbox.kill()

    async def all_gone() -> bool:
        return not any(os.path.exists(f"/proc/{pid}") for pid in children)  # noqa: ASYNC240 - no disk

    await until(all_gone)


# --- said twice, ended, late


async def test_a_call_published_twice_is_run_once(bench: Bench) -> None:
    await bench.start()
    call = bench.block("import time, random\ntime.sleep(0.2)\nlook(str(time.time()))")
    await bench.publish(call, encode(call))
    await bench.publish(call, encode(call))
    answer = yielded(await bench.answer(call))
    assert await bench.answer(call) == answer, "the stream takes it for the same message"
    done = finished(await bench.ask(bench.reply(call, answer, "seen")))
    assert done.output == "seen"


async def test_an_ended_run_has_its_code_stopped(bench: Bench) -> None:
    await bench.start()
    call = bench.block("while True: pass", limits=CodeLimits(seconds=60))
    await bench.send(call)
    await bench.at_work()
    began = time.monotonic()

    async def ended() -> bool:
        # Asked again and again: an interrupt may come before the code has begun, and may be lost.
        await bench.bus.interrupt(call.tree, call.tree)
        return await bench.all_acked()

    await until(ended)
    assert time.monotonic() - began < 10
    assert bench.unread(call) == 0
    finished(await bench.ask(bench.block("1")))


async def test_code_is_not_begun_after_its_deadline(bench: Bench) -> None:
    call = bench.block("1", deadline=time.time() - 1)
    await bench.send(call)
    await bench.start()
    answer = finished(await bench.answer(call))
    assert failure(answer).type == "DeadlineExceeded"


async def test_one_that_is_told_to_stop_hands_its_code_back(bench: Bench) -> None:
    first = await bench.start(CADRE_DRAIN_SECONDS="0.5")
    call = bench.block("import time\ntime.sleep(3)\n'slept'")
    await bench.send(call)
    await bench.at_work()
    first.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(first.process.wait(), patience()) == 0
    second = await bench.start()
    answer = finished(await bench.answer(call))
    assert (answer.output, answer.sandbox) == ("slept", second.name)


# --- what no one can serve


async def test_what_is_no_message_becomes_a_dead_letter(bench: Bench) -> None:
    await bench.start()
    call = bench.block("1")
    await bench.publish(call, b"{nonsense")
    letter = await bench.dead_letter()
    assert letter.reason.startswith("not a message")
    assert bench.unread(call) == 0
    assert isinstance(await bench.ask(call), CodeFinished)


async def test_a_call_with_a_wrong_field_is_refused_and_its_run_is_told(bench: Bench) -> None:
    await bench.start()
    call = bench.block("1", snapshot="blob:x")
    await bench.publish(call, encode(call).replace(b'"code":"1"', b'"code":1'))
    answer = finished(await bench.answer(call))
    assert (answer.block, answer.snapshot) == (call.block, "blob:x")
    assert failure(answer).type == "Poisoned"
    assert "'code_call'" in failure(answer).message
    assert "$.code" in (await bench.dead_letter()).reason


async def test_nobody_is_told_in_the_name_of_another_run(bench: Bench) -> None:
    await bench.start()
    call, other = bench.block("1"), bench.block("1")
    await bench.publish(call, encode(other))
    assert (await bench.dead_letter()).reason.startswith(f"code of run '{other.run}' among that of ")
    assert bench.unread(other) == bench.unread(call) == 0


async def test_a_python_that_is_none_ends_it_with_one_line(bench: Bench) -> None:
    sandbox = await bench.launch("--python", "/nonexistent/python")
    assert await asyncio.wait_for(sandbox.process.wait(), patience()) == 2
    last = (await sandbox.said()).splitlines()[-1]
    assert last.startswith("cadre: sandbox cannot start: the sandbox's Python /nonexistent/python cannot be started")
