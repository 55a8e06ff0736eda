"""A call that comes to a second executor while the first one lives, is dead, or is stopped: real processes."""

import asyncio
import math
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from nats.aio.msg import Msg

from cadre.adapters.nats import peers as nats_peers
from cadre.adapters.nats.connection.connect import connect, seconds_since_return, settled
from cadre.adapters.nats.peers import NatsPeers
from cadre.protocol.messages import ToolCall
from cadre.protocol.topology import Topology
from cadre.settings import Settings
from harness.nats_server import NatsServer
from harness.patience import patience, until
from harness.standstill import stand_still
from integration.executor_bench import Bench, Visit, kill
from integration.service_bench import failure

SILENT = "does not answer"
"""The log line of an executor about one that did not answer."""


class Questions:
    """Questions and answers between executors, overheard. (Who listens on a subject counts as somebody
    who might answer there: no one learns any more that the subject has no listener.)"""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        """Subjects, and the calls that they were asked about."""
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._replies: set[str] = set()
        self._early: list[Msg] = []

    async def overhear(self, bench: Bench) -> None:
        await bench.nc.subscribe(f"{bench.topology.prefix}.executor.>", cb=self._on_question)
        await bench.nc.subscribe("_INBOX.>", cb=self._on_answer)
        await settled(bench.nc)

    async def _on_question(self, question: Msg) -> None:
        self.asked.append((question.subject, question.data.decode()))
        self._replies.add(question.reply)
        early, self._early = self._early, []
        for answer in early:
            await self._on_answer(answer)

    async def _on_answer(self, answer: Msg) -> None:
        """Two subscriptions have no common order: the question may still be on its way."""
        if answer.subject in self._replies:
            self.answers.put_nowait(answer.data)
        else:
            self._early.append(answer)


class Scene(NamedTuple):
    bench: Bench
    first: asyncio.subprocess.Process
    """At work on the call."""
    call: ToolCall
    visit: Visit
    seq: int
    """Of the call's message."""

    async def deliver_again(self) -> None:
        """As if the ack wait were over, though the first one gives its signs of life."""
        stream = self.bench.topology.stream_of(self.call.tree)
        consumer = self.bench.topology.tool_consumer(self.call.tool)
        await self.bench.nc.publish(f"$JS.ACK.{stream}.{consumer}.1.{self.seq}.1.0.0", b"-NAK")

    async def has_asked(self, questions: Questions) -> None:
        """Delivered again until it came to the other one, and that has asked."""

        async def asked() -> bool:
            await self.deliver_again()
            await settled(self.bench.nc)
            return bool(questions.asked)

        await until(asked)

    @property
    def question(self) -> tuple[str, str]:
        return self.bench.topology.executor(self.call.tool, "executor-0"), self.call.id


async def scene(bench: Bench, tool: str) -> Scene:
    """One executor is at work on a call, a second one has nothing to do."""
    first = await bench.start()
    call = bench.staged_call(tool)
    seq = await bench.publish(call)
    visit = await bench.visit()
    await bench.start()
    return Scene(bench, first, call, visit, seq)


@pytest.mark.parametrize("tool", ["pay", "put"])
async def test_who_is_at_work_and_says_so_is_left_to_it(bench: Bench, tool: str) -> None:
    one, questions = await scene(bench, tool), Questions()
    await questions.overhear(bench)
    await one.has_asked(questions)
    assert await asyncio.wait_for(questions.answers.get(), patience()) == b"+"
    assert set(questions.asked) == {one.question}
    await one.visit.let_go("done by the first")
    assert (await bench.answer(one.call)).output == "done by the first"
    await until(lambda: bench.all_acked(tool))
    assert bench.visits.empty()
    assert bench.effects_of(one.call) == 1
    effect = await bench.effects.read(bench.new_claim(one.call))
    assert effect is not None
    assert effect.result is not None
    assert effect.result.executor == "executor-0"
    assert bench.unread(one.call) == 0


async def test_who_is_dead_is_known_to_be_at_once(bench: Bench) -> None:
    one = await scene(bench, "pay")
    await kill(one.first)
    await one.deliver_again()
    result = await bench.answer(one.call)
    assert failure(result).type == "Interrupted"
    await until(lambda: bench.all_acked("pay"))
    assert bench.effects_of(one.call) == 1
    assert SILENT not in await bench.last_words()


async def test_who_comes_back_later_than_the_server_is_waited_for(tmp_path: Path) -> None:
    with NatsServer(tmp_path, more="trace: true\n") as server:  # its log has what is asked and gets no answer
        async with Bench.open(Settings(nats_url=server.url, shards=1), tmp_path) as bench:
            one = await scene(bench, "pay")
            question = f"[PUB {one.question[0]} "
            stand_still(one.first.pid)
            server.kill()
            server.start()

            async def asked_in_vain() -> bool:
                if bench.nc.is_connected:
                    await one.deliver_again()
                return (tmp_path / "nats.log").read_text().count(question) > 1

            await until(asked_in_vain)
            one.first.send_signal(signal.SIGCONT)
            await one.visit.let_go("done by the first")
            result = await bench.answer(one.call)
            assert (result.output, result.executor) == ("done by the first", "executor-0")
            await until(lambda: bench.all_acked("pay"))
            assert bench.effects_of(one.call) == 1


async def test_who_does_not_come_back_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = NatsServer(tmp_path)
    server.start()
    nc = await connect(Settings(nats_url=server.url), "test")
    try:
        peers = NatsPeers(nc, Topology(1))
        monkeypatch.setattr(nats_peers, "RETURN_SECONDS", 10 * patience())
        # The server was never away: there is no one to wait for.
        assert await asyncio.wait_for(peers.has_in_hand("pay", "gone", "t_1_0"), patience()) is False
        monkeypatch.setattr(nats_peers, "RETURN_SECONDS", 3.0)
        server.kill()
        server.start()

        async def is_back() -> bool:
            return seconds_since_return(nc) < math.inf

        await until(is_back)
        began = time.monotonic()
        assert await asyncio.wait_for(peers.has_in_hand("pay", "gone", "t_1_0"), patience()) is False
        assert time.monotonic() - began > 0.2
    finally:
        await nc.close()
        server.stop()


async def test_who_is_stopped_is_asked_twice_and_taken_for_dead(bench: Bench) -> None:
    one, questions = await scene(bench, "pay"), Questions()
    await questions.overhear(bench)
    stand_still(one.first.pid)
    try:
        await one.has_asked(questions)
        result = await bench.answer(one.call)
        assert failure(result).type == "Interrupted"
        assert result.executor == "executor-1"
        assert questions.asked == [one.question] * 2
    finally:
        one.first.send_signal(signal.SIGCONT)
    # It wakes up and says what was said in its place.
    await one.visit.let_go("too late")
    assert await bench.answer(one.call) == result
    await until(lambda: bench.all_acked("pay"))
    assert bench.effects_of(one.call) == 1
    assert SILENT in await bench.last_words()
