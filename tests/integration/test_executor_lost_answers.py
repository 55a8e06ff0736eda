"""Tests of what an executor does when the server's answer is lost, and when another one was faster."""

import functools

import msgspec
import pytest

from cadre.adapters.nats.dead_letters import NatsQuarantine
from cadre.adapters.nats.effects import NatsEffects
from cadre.adapters.nats.peers import NatsPeers
from cadre.adapters.nats.queues.queue import Queue
from cadre.adapters.nats.server_clock import SystemClock
from cadre.errors import OutcomeUnknown
from cadre.protocol.messages import EffectClaim, EffectResult, ErrorInfo, ToolCall, ToolResult
from cadre.runtime.executor import Executor, InHand
from harness.patience import until
from integration.executor_bench import Bench
from integration.executor_tools import mark


class Lossy(NatsEffects):
    """Real effects behind a network that loses requests and answers, each kind as often as asked."""

    lost_claim_answers = 0
    lost_settle_requests = 0
    lost_settle_answers = 0
    overtaken_by: ErrorInfo | None = None

    async def claim(self, claim: EffectClaim) -> int:
        seq = await super().claim(claim)
        self._lose("lost_claim_answers")
        return seq

    async def settle(self, settled: EffectResult) -> None:
        if self.overtaken_by is not None:
            winner = msgspec.structs.replace(settled.result, output=None, error=self.overtaken_by)
            await super().settle(msgspec.structs.replace(settled, result=winner))
        self._lose("lost_settle_requests")
        await super().settle(settled)
        self._lose("lost_settle_answers")

    def _lose(self, what: str) -> None:
        left: int = getattr(self, what)
        if left:
            setattr(self, what, left - 1)
            raise OutcomeUnknown(what, "lost")


async def answer_through(bench: Bench, effects: Lossy) -> tuple[ToolCall, ToolResult]:
    """One call of `mark`, served in this process over the given effects."""
    in_hand = InHand("here", effects, NatsPeers(bench.nc, bench.topology))
    quarantine = NatsQuarantine(bench.nc, bench.topology)
    executor = Executor(effects, bench.bus, bench.blobs, in_hand, quarantine, SystemClock())
    call = bench.new_call("mark", {"folder": str(bench.folder)})
    shard = bench.topology.shard(call.tree)
    queue = Queue(
        bench.nc,
        bench.topology.stream(shard),
        bench.topology.tool_consumer("mark"),
        bench.topology.call_filter(shard, "mark"),
        functools.partial(executor.handle, mark),
        limit=4,
    )
    await queue.start()
    await bench.send(call)
    result = await bench.answer(call)

    async def idle() -> bool:
        return queue.in_flight == 0

    await until(idle)
    await queue.drain(5)
    return call, result


@pytest.mark.parametrize(
    ("what", "times"), [("lost_claim_answers", 1), ("lost_settle_requests", 2), ("lost_settle_answers", 1)]
)
async def test_a_lost_answer_neither_repeats_nor_loses_the_effect(bench: Bench, what: str, times: int) -> None:
    effects = Lossy(bench.nc, bench.topology)
    setattr(effects, what, times)
    call, result = await answer_through(bench, effects)
    assert getattr(effects, what) == 0
    assert result.output == "marked"
    assert bench.effects_of(call) == 1
    stored = await effects.read(bench.new_claim(call))
    assert stored is not None
    assert stored.result == result


async def test_who_settles_second_sends_what_the_first_said(bench: Bench) -> None:
    effects = Lossy(bench.nc, bench.topology)
    effects.overtaken_by = ErrorInfo("interrupted", "outcome unknown: taken for dead")
    call, result = await answer_through(bench, effects)
    assert result.error == effects.overtaken_by
    stored = await effects.read(bench.new_claim(call))
    assert stored is not None
    assert stored.result == result
