"""Warm interpreters: how many are kept, for how long, and what ends them before."""

import asyncio

import pytest

from cadre.protocol.code import CodeReply
from cadre_sandbox.interpreters.pool import Sandbox
from harness.patience import patience
from sandbox.service_bench import Bench, after, block, death, exchange, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("ended", ["t_1_0", "t"])
async def test_an_interrupt_stops_code_at_work(bench: Bench, ended: str) -> None:
    asked = asyncio.create_task(bench.ask(block("while True: pass", run="t_1_0")))
    async with asyncio.timeout(patience()):
        while not (pids := [s.session.pid for s in bench.warm_pool._leased.values() if s.session]):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    ended_itself = death(pids[0])
    bench.warm_pool.interrupt(ended)
    assert await asyncio.wait_for(asked, patience()) is None
    await asyncio.wait_for(ended_itself, patience())
    assert await bench.ask(block("1", run="t_1_0", step=2)) is None


async def test_an_interrupt_ends_what_is_kept_for_the_run_and_those_below(bench: Bench) -> None:
    for run in ("t_1_0", "t_1_0_2_1", "t_1_1", "t_1_00"):
        await bench.finished(block("x = 1", run=run))
    bench.warm_pool.interrupt("t_1_0")
    assert bench.warm_pool.warm == ["t_1_1", "t_1_00"]


async def test_the_one_left_longest_makes_room(sandbox: Sandbox) -> None:
    bench = Bench(sandbox, most=2)
    for run in ("a", "b"):
        await bench.finished(block("x = 1", run=run))
    mid = block("[look(what) for what in 'ab']", run="a", step=2)
    answer = await bench.yielded(mid)
    await bench.finished(block("x = 1", run="c"))
    assert bench.warm_pool.warm == ["a", "c"]
    await bench.finished(block("x = 1", run="d"))
    assert bench.warm_pool.warm == ["c", "d"]
    # Put away in the middle of its block, it goes on by replay.
    assert (await bench.yielded(reply(mid, answer, "A"))).calls[0].arguments == {"what": "b"}
    await bench.warm_pool.close()


async def test_one_that_nobody_comes_back_to_is_closed(sandbox: Sandbox) -> None:
    bench = Bench(sandbox, idle=0.3)
    await bench.finished(block("x = 1", run="a"))
    pid = await bench.pid("a")
    assert pid is not None
    await asyncio.wait_for(death(pid), patience())
    assert bench.warm_pool.warm == []


async def test_it_knows_for_which_calls_it_is_the_place(bench: Bench) -> None:
    first = block("a = look('1')\nb = look('2')\n[a, b]")
    assert not await bench.warm_pool.can_continue(first), "anybody may begin"
    then = reply(first, await bench.yielded(first), "x")
    assert await bench.warm_pool.can_continue(then), "what comes next"
    assert await bench.warm_pool.can_continue(first), "what it has answered"
    asked = await bench.yielded(then)
    assert await bench.warm_pool.can_continue(first), "and what it answered before that"
    last = reply(then, asked, "y")
    done = await bench.finished(last)
    assert await bench.warm_pool.can_continue(after(last, done, "a"))
    assert bench.warm_pool.warm == ["r"]


async def test_an_interpreter_that_stands_elsewhere_gives_way(bench: Bench) -> None:
    first = block("a = look('1')\nb = look('2')\n[a, b]")
    elsewhere = reply(first, await bench.yielded(first), "x")
    beyond = exchange(elsewhere, elsewhere.exchanges[0].calls, [CodeReply(value="y")], [])
    assert not await bench.warm_pool.can_continue(beyond)
    assert bench.warm_pool.warm == []


async def test_others_are_told_which_runs_are_warm(sandbox: Sandbox) -> None:
    told: list[tuple[str, str]] = []

    class Listener:
        async def listen(self, run: str) -> None:
            told.append(("listen", run))

        async def forget(self, run: str) -> None:
            told.append(("forget", run))

    bench = Bench(sandbox, listener=Listener())
    done = await bench.finished(first := block("x = 1"))
    assert told == [("listen", "r")]
    await bench.finished(after(first, done, "final_answer(x)"))
    assert told == [("listen", "r"), ("forget", "r")]
