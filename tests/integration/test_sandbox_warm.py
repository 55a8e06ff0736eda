"""A run's code goes to the sandbox that keeps its interpreter; and on without it, when that one dies."""

import platform
import signal
import time

from cadre.adapters.nats.connection.connect import settled
from cadre.adapters.nats.registry import NatsRegistry
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded
from harness.patience import until
from harness.standstill import stand_still
from integration.sandbox_bench import Bench, Sandbox
from integration.service_bench import finished, yielded
from sandbox.service_bench import LOOK

COUNT = 24
LOOP = f"seen = [look(str(n)) for n in range({COUNT})]\n', '.join(seen)"


async def served(bench: Bench, sandbox: Sandbox) -> dict[str, int]:
    """Calls that it says to have served, by the way it did."""
    _, said = await bench.readiness(sandbox)
    counts = (one.split(" ", 1) for one in said["served"].split(", ") if " " in one)
    return {what: int(count) for count, what in counts}


def by_name(sandboxes: list[Sandbox], answer: CodeYielded | CodeFinished) -> tuple[Sandbox, Sandbox]:
    """The one that gave the answer, and the other."""
    one, other = sandboxes
    return (one, other) if answer.sandbox == one.name else (other, one)


async def test_every_call_of_a_block_is_served_where_it_is_warm(bench: Bench) -> None:
    sandboxes = [await bench.start(), await bench.start()]
    call = bench.block(LOOP)
    answers = [await bench.ask(call)]
    while isinstance(answers[-1], CodeYielded):
        call = bench.reply(call, answers[-1], "x")
        answers.append(await bench.ask(call))
    assert answers[-1].error is None
    assert answers[-1].output == ", ".join(["x"] * COUNT)
    after = finished(await bench.ask(bench.block("len(seen)", run=call.run, step=2, snapshot=answers[-1].snapshot)))
    assert after.output == COUNT
    assert len({answer.sandbox for answer in (*answers, after)}) == 1
    warm, other = by_name(sandboxes, after)
    counts = await served(bench, warm)
    assert (counts.get("fresh"), counts.get("warm"), counts.get("again")) == (1, COUNT + 1, None)
    # The server gives them out in turns: some went to the other one first.
    others = await served(bench, other)
    assert set(others) == {"handed over"}
    assert others["handed over"] > 0
    await until(bench.all_acked)


async def test_the_warm_one_is_killed_with_a_call_that_it_was_handed(bench: Bench) -> None:
    """Nothing is lost: the call is delivered again, and replayed from what is recorded."""
    sandboxes = [await bench.start(), await bench.start()]
    names = {sandbox.name for sandbox in sandboxes}
    code = "one = look('1')\nimport time\nlong = time.sleep(2)\ntwo = look('2')\n[one, two]"
    calls: list[CodeCall] = []
    warm: dict[str, list[CodeCall]] = {name: [] for name in names}
    # Enough runs that one of each two next calls is delivered to the wrong one.
    for _ in range(6):
        call = bench.block(code)
        answer = yielded(await bench.ask(call))
        calls.append(bench.reply(call, answer, "a"))
        warm[answer.sandbox].append(calls[-1])
    victim, survivor = sandboxes if warm[sandboxes[0].name] else sandboxes[::-1]
    for call in calls:
        await bench.send(call)

    async def handed_over() -> bool:
        counts = [await served(bench, sandbox) for sandbox in sandboxes]
        return sum(count.get("handed over", 0) + count.get("warm", 0) for count in counts) >= len(calls)

    await until(handed_over)
    assert (await served(bench, victim)).get("warm", 0) > 0, "it is at work for its runs"
    await victim.kill()
    for call in calls:
        answer = yielded(await bench.answer(call))
        if call in warm[victim.name]:
            assert answer.sandbox == survivor.name
        done = finished(await bench.ask(bench.reply(call, answer, "b")))
        assert done.output == ["a", "b"]
    await until(bench.all_acked)


async def test_one_that_was_left_behind_does_not_go_on(bench: Bench) -> None:
    """Two keep an interpreter of the run: the one that stands elsewhere gives way."""
    first = await bench.start()
    call = bench.block("a = look('1')\nb = look('2')\nc = look('3')\n[a, b, c]")
    asked = await bench.ask(call)
    stand_still(first.process.pid)  # it holds its interpreter, and hears nothing
    second = await bench.start()
    call = bench.reply(call, asked, "x")
    began = time.monotonic()
    answer = await bench.ask(call)
    assert answer.sandbox == second.name
    assert time.monotonic() - began < 15
    first.process.send_signal(signal.SIGCONT)
    for value in ("y", "z"):
        assert isinstance(answer, CodeYielded)
        call = bench.reply(call, answer, value)
        answer = await bench.ask(call)
    done = finished(answer)
    assert (done.output, done.error) == (["x", "y", "z"], None)


async def test_the_past_of_a_long_block_is_not_sent_again(bench: Bench) -> None:
    """Messages stay small, and another sandbox finds the past where the messages say."""
    sandbox = await bench.start()
    sizes: list[int] = []

    async def measure(message: object) -> None:
        sizes.append(len(message.data))  # type: ignore[attr-defined]

    await bench.nc.subscribe(f"{bench.topology.prefix}.code.>", cb=measure)
    await settled(bench.nc)
    count = 60
    code = f"seen = [look(str(n)) for n in range({count})]\nlen(''.join(seen))"
    call = bench.block(code)
    answer = await bench.ask(call)
    for number in range(count):
        assert isinstance(answer, CodeYielded)
        assert answer.exchange == number
        call = bench.reply(call, answer, "x" * 1000)
        if number == 50:
            await sandbox.kill()
            sandbox = await bench.start()
        answer = await bench.ask(call)
    assert finished(answer).output == count * 1000
    assert max(sizes) < 25_000
    counts = await served(bench, sandbox)
    assert (counts.get("again"), counts.get("warm")) == (1, count - 51)


async def test_it_says_in_the_registry_which_pool_it_serves(bench: Bench) -> None:
    registry = NatsRegistry(bench.nc, bench.topology)
    await registry.start()
    try:
        await bench.start("--pool", "heavy", CADRE_SANDBOX_SESSIONS="3")

        async def there() -> bool:
            return any(presence.sandbox for presence in registry.presences())

        await until(there)
        (card,) = [presence.sandbox for presence in registry.presences() if presence.sandbox]
        assert (card.pool, card.sessions, card.python) == ("heavy", 3, platform.python_version())
        assert card.tier in ("ns", "landlock")
    finally:
        await registry.stop()


async def test_a_pool_is_asked_in_its_own_name(bench: Bench) -> None:
    """It does not touch an interpreter that another pool keeps for the run."""
    await bench.start("--pool", "other")
    await bench.start()
    call = bench.block("a = look('1')\na")
    assert LOOK in call.functions
    asked = await bench.ask(call)
    done = finished(await bench.ask(bench.reply(call, asked, "x")))
    assert done.output == "x"
    await until(bench.all_acked)
