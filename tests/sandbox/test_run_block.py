"""Code calls answered: in the warm interpreter that stands there, by replay in any other, and what ends them."""

import asyncio
import os
import signal
import time

import pytest
from msgspec.structs import replace

from cadre.errors import BlobMissing, UnreadableMessage
from cadre.protocol.code import BASE_IMPORTS, CodeFunction, CodeLimits, CodeReply, CodeRequest
from cadre_sandbox.interpreters.pool import Sandbox
from cadre_sandbox.serving.exchange import check_call
from cadre_sandbox.serving.run_block import MAX_LOSSES, VARIABLES_GONE
from harness.texts import holds
from sandbox.service_bench import Bench, after, block, exchange, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOOP = """
seen = []
for what in ["a", "b", "c"]:
    print("looking for", what)
    seen.append(look(what))
seen
"""


async def test_a_block_is_answered_with_all_that_came_of_it(bench: Bench) -> None:
    answer = await bench.finished(block("x = 20\nprint('so')\nx + 1"))
    assert (answer.id, answer.block, answer.exchange) == ("r_1_0:0:finished", "r_1_0", 0)
    assert (answer.output, answer.text, answer.logs, answer.error) == (21, "21", "so\n", None)
    assert (answer.sandbox, answer.tier) == ("here", bench.sandbox.tier)
    assert answer.snapshot in bench.blobs.held
    assert 0 < answer.seconds < 5
    assert not answer.is_final_answer


async def test_the_next_block_goes_on_in_the_same_interpreter_without_its_snapshot(bench: Bench) -> None:
    first = block("x = 20")
    answer = await bench.finished(first)
    pid = await bench.pid("r")
    gets = bench.blobs.gets
    assert (await bench.finished(after(first, answer, "x + 1"))).output == 21
    assert await bench.pid("r") == pid
    assert bench.blobs.gets == gets


async def test_any_other_replica_goes_on_from_the_snapshot(bench: Bench, other: Bench) -> None:
    first = block("x = 20\ndef more(n):\n    return x + n")
    answer = await bench.finished(first)
    assert (await other.finished(after(first, answer, "more(2)"))).output == 22


async def test_what_changed_nothing_is_not_stored_again(bench: Bench) -> None:
    first = block("x = 20")
    answer = await bench.finished(first)
    puts = bench.blobs.puts
    second = await bench.finished(after(first, answer, "print(x)"))
    assert second.snapshot == answer.snapshot
    assert bench.blobs.puts == puts


@pytest.mark.parametrize("warm", [True, False])
async def test_a_loop_of_calls_yields_each_and_goes_on(bench: Bench, other: Bench, warm: bool) -> None:
    call = block(LOOP)
    for number, what in enumerate("abc"):
        replica = bench if warm or number % 2 else other
        answer = await replica.yielded(call)
        assert answer.id == f"r_1_0:{number}:yielded"
        assert answer.calls == [CodeRequest("look", {"what": what})]
        call = reply(call, answer, what.upper())
    done = await (bench if warm else other).finished(call)
    assert done.id == "r_1_0:3:finished"
    assert done.output == ["A", "B", "C"]
    assert done.logs == "looking for a\nlooking for b\nlooking for c\n"


async def test_a_resumed_block_stays_in_its_interpreter(bench: Bench) -> None:
    call = block(LOOP)
    answer = await bench.yielded(call)
    pid = await bench.pid("r")
    await bench.yielded(reply(call, answer, 1))
    assert await bench.pid("r") == pid


async def test_clock_and_chance_are_the_same_in_a_replay(bench: Bench, other: Bench) -> None:
    code = "import time, random\nnow, chance = time.time(), random.random()\nlook(str([now, chance]))\n[now, chance]"
    call = block(code)
    first = await bench.yielded(call)
    done = await other.finished(reply(call, first, "seen"))
    assert done.output is not None
    assert first.calls[0].arguments["what"] == str(done.output)


CHANCE = """
import random, secrets, uuid
drawn = [secrets.token_hex(8), str(uuid.uuid4()), random.random()]
look(str(drawn))
drawn
"""


async def test_chance_follows_from_the_pools_secret(bench: Bench, other: Bench, sandbox: Sandbox) -> None:
    """A reader of the run cannot compute it; a replay in another replica of the pool has it all the same."""
    call = block(CHANCE, imports=["random", "secrets", "uuid"])
    drawn = (await bench.yielded(call)).calls[0].arguments
    answer = await other.yielded(call)
    assert answer.calls[0].arguments == drawn
    elsewhere = Bench(sandbox, secret=b"of another pool")
    assert (await elsewhere.yielded(call)).calls[0].arguments != drawn
    await elsewhere.warm_pool.close()


async def test_errors_of_calls_are_raised_in_the_code(bench: Bench) -> None:
    call = block("try:\n    look('a')\nexcept Exception as error:\n    print(error)")
    answer = await bench.yielded(call)
    done = await bench.finished(exchange(call, answer.calls, [CodeReply(error="nobody is there")], answer.clock))
    assert done.logs == "nobody is there\n"


async def test_a_cut_reply_is_fetched_whole(bench: Bench, other: Bench) -> None:
    whole = "é" * 100_000
    ref = await bench.blobs.put(whole.encode())
    call = block("len(look('a'))")
    answer = await bench.yielded(call)
    call = exchange(call, answer.calls, [CodeReply(value="éé…", blob=ref)], answer.clock)
    for replica in (bench, other):
        assert (await replica.finished(call)).output == 100_000


async def test_bytes_travel_through_blobs_and_are_the_same_in_a_replay(bench: Bench, other: Bench) -> None:
    call = block("data = b'abc' * 3\nlook(data)\n{'$given': data}")
    answer = await bench.yielded(call)
    form, ref = answer.calls[0].arguments["what"]["$given"]
    assert (form, bench.blobs.held[ref]) == ("bytes", b"abcabcabc")
    done = await other.finished(reply(call, answer, None))
    assert done.error is None
    assert done.output == {"$dict": {"$given": {"$given": ["bytes", ref]}}}


async def test_variables_are_there_and_a_reference_in_them_is_a_text(bench: Bench) -> None:
    variables = {"count": 3, "photo": "blob:" + "0" * 64}
    assert (await bench.finished(block("[count, photo]", inputs=variables))).output == [
        3,
        variables["photo"],
    ]


async def test_imports_are_those_that_the_call_names(bench: Bench) -> None:
    code = "import math, json\njson.dumps(math.floor(1.5))"
    refused = await bench.finished(block(code))
    assert refused.error is not None
    assert refused.error.message.startswith("Code execution failed at line 'import math, json' due to: NotAllowed: ")
    assert (await bench.finished(block(code, step=2, imports=["json", "math"]))).output == "1"


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("x = 1\nx / 0", ["'x / 0'", "ZeroDivisionError"]),
        ("x = = 1", ["line 1", "SyntaxError"]),
        ("while True: pass", ["'while True: pass'", "0.3 s"]),
    ],
)
async def test_errors_name_their_line_and_cause(bench: Bench, code: str, named: list[str]) -> None:
    done = await bench.finished(block(code, limits=CodeLimits(seconds=0.3)))
    assert done.error is not None
    assert done.error.code == "code-failed"
    assert holds(done.error.message, *named)


async def test_what_an_error_left_is_there_for_the_next_block(bench: Bench, other: Bench) -> None:
    first = block("x = 7\nx / 0")
    failed = await bench.finished(first)
    for replica in (bench, other):
        assert (await replica.finished(after(first, failed, "x"))).output == 7


async def test_a_final_answer_ends_the_interpreter(bench: Bench) -> None:
    done = await bench.finished(block("final_answer({'sum': 3})"))
    assert (done.is_final_answer, done.output) == (True, {"sum": 3})
    assert bench.warm_pool.warm == []


async def test_a_divergent_replay_is_an_observation(other: Bench) -> None:
    made_up = exchange(block(LOOP), [CodeRequest("look", {"what": "z"})], [CodeReply(value=1)], [])
    done = await other.finished(made_up)
    assert done.error is not None
    assert done.error.message.startswith("Code execution stopped")
    assert "look" in done.error.message


# --- said twice, late, too late


async def test_a_call_said_twice_is_answered_the_same_and_run_once(bench: Bench) -> None:
    call = block("import time\ntime.time()")
    first = await bench.finished(call)
    assert await bench.finished(call) == first
    asked = block("import time\nlook(str(time.time()))", step=2, snapshot=first.snapshot)
    assert await bench.yielded(asked) == await bench.yielded(asked)


async def test_both_at_once_share_no_interpreter_but_its_answer(bench: Bench) -> None:
    call = block("import time\ntime.sleep(0.2)\nlook(str(time.time()))")
    first, second = await asyncio.gather(bench.yielded(call), bench.yielded(call))
    assert first == second


async def test_a_call_of_the_past_disturbs_nothing(bench: Bench) -> None:
    call = block(LOOP)
    once = reply(call, await bench.yielded(call), "A")
    twice = reply(once, await bench.yielded(once), "B")
    await bench.yielded(twice)
    pid = await bench.pid("r")
    assert await bench.ask(call) is None
    assert await bench.ask(once) is None
    assert await bench.pid("r") == pid


async def test_another_word_for_the_same_place_is_replayed_anew(bench: Bench) -> None:
    """Two replicas ran the block; the run took the other one's word, whose clock was another."""
    call = block("import time\nnow = time.time()\nlook('a')\nnow")
    answer = await bench.yielded(call)
    taken = exchange(call, answer.calls, [CodeReply(value=1)], [12345.0])
    assert (await bench.finished(taken)).output == 12345.0


async def test_another_way_to_the_same_place_is_replayed_anew(bench: Bench) -> None:
    """The run was set back and another reply came, after which the code made the same call as before."""
    first = block("a = look('1')\nb = look('2')\n[a, b]")
    asked = await bench.yielded(first)
    second = await bench.yielded(reply(first, asked, "x"))
    other_way = reply(reply(first, asked, "y"), second, "z")
    assert (await bench.finished(other_way)).output == ["y", "z"]


async def test_after_its_deadline_code_is_not_begun(bench: Bench) -> None:
    done = await bench.finished(block("1", snapshot="blob:x", deadline=time.time() - 1))
    assert done.error is not None
    assert (done.error.code, done.snapshot) == ("deadline", "blob:x")
    assert bench.warm_pool.warm == []


async def test_a_block_whose_time_passes_while_it_waits_does_not_go_on(bench: Bench) -> None:
    call = block("kept = 1\nlook('a')")
    late = replace(reply(call, await bench.yielded(call), "x"), deadline=time.time() - 1)
    done = await bench.finished(late)
    assert done.error is not None
    assert done.error.code == "deadline"
    assert (await bench.finished(after(call, done, "'kept' in dir()"))).output is False


async def test_behind_its_first_block_a_run_reads_which_modules_are_not_installed(bench: Bench) -> None:
    imports = [*BASE_IMPORTS, "no_such_module", "json", "no_such.part", "*"]
    first = block("x = 1", imports=imports)
    done = await bench.finished(first)
    (note,) = done.notes
    assert "no_such_module, no_such" in note
    assert not any(name in note for name in ("json", "*", "no_such.part"))
    assert (await bench.finished(after(first, done, "x", imports=imports))).notes == []


# --- losses


async def test_an_interpreter_lost_within_a_block_is_replaced_by_replay(bench: Bench) -> None:
    call = block(LOOP)
    answer = await bench.yielded(call)
    pid = await bench.pid("r")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    again = await bench.yielded(reply(call, answer, "A"))
    assert again.calls == [CodeRequest("look", {"what": "b"})]
    assert again.logs == "looking for a\nlooking for b\n"
    assert await bench.pid("r") != pid


async def test_one_lost_between_blocks_is_replaced_from_the_snapshot(bench: Bench) -> None:
    first = block("x = 20")
    answer = await bench.finished(first)
    pid = await bench.pid("r")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert (await bench.finished(after(first, answer, "x + 1"))).output == 21


async def test_one_lost_again_and_again_is_an_observation(bench: Bench) -> None:
    lost: list[int] = []
    over = asyncio.Event()

    async def kill_each() -> None:
        while not over.is_set():
            for interpreter in bench.warm_pool._leased.values():
                if interpreter.session and interpreter.session.alive and interpreter.session.pid not in lost:
                    lost.append(interpreter.session.pid)
                    os.kill(interpreter.session.pid, signal.SIGKILL)
            await asyncio.sleep(0.01)

    killing = asyncio.create_task(kill_each())
    done = await bench.finished(block("while True: pass", snapshot=None))
    over.set()
    await killing
    assert len(lost) == MAX_LOSSES
    assert done.error is not None
    assert done.error.type == "AgentExecutionError"
    assert str(MAX_LOSSES) in done.error.message


async def test_lost_variables_are_said_to_be_and_the_run_goes_on(bench: Bench) -> None:
    missing = "blob:" + "1" * 64
    first = block("x", snapshot=missing)
    done = await bench.finished(first)
    assert done.error is not None
    assert str(missing) in done.error.message
    assert done.notes == [VARIABLES_GONE]
    assert done.snapshot is None
    assert (await bench.finished(after(first, done, "1"))).output == 1


async def test_unreadable_variables_are_said_to_be_and_the_run_goes_on(bench: Bench) -> None:
    first = block("x", snapshot=await bench.blobs.put(b"no snapshot"))
    done = await bench.finished(first)
    assert done.error is not None
    assert done.error.code == "code-failed"
    assert (done.notes, done.snapshot) == ([VARIABLES_GONE], None)
    assert (await bench.finished(after(first, done, "1"))).output == 1


async def test_a_reply_that_is_nowhere_is_no_work_for_anybody(bench: Bench) -> None:
    call = block("look('a')")
    answer = await bench.yielded(call)
    with pytest.raises(BlobMissing):
        await bench.ask(exchange(call, answer.calls, [CodeReply(value="", blob="blob:" + "2" * 64)], answer.clock))
    assert bench.warm_pool.warm == []


# --- no call at all


async def test_a_call_is_checked_before_it_is_run() -> None:
    call = block("1")
    subject = "p.code.0.default.r.r"
    check_call(call, subject, "default")
    for wrong, said in (
        (replace(call, pool="other"), "pool 'other'"),
        (replace(call, run="q"), "code of run 'q'"),
        (replace(call, agent="a.b"), "no name of an agent"),
        (exchange(call, [CodeRequest("look", {})], [], []), "exchange 0 has 1 calls and 0 replies"),
        (replace(call, functions=[CodeFunction(name="f", signature="(")]), "function 'f'"),
    ):
        with pytest.raises(UnreadableMessage, match=said):
            check_call(wrong, subject, "default")
