"""Executors and claims: whose call is run, whose is left alone, and what is answered after a crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cadre.delivery.codec import encode
from cadre.errors import Fenced, OutcomeUnknown
from cadre.ports import Effect
from cadre.protocol.messages import EffectClaim, EffectResult, ToolCall, ToolResult
from cadre.protocol.topology import result_id
from cadre.runtime.executor import Executor
from cadre.runtime.in_hand import InHand
from cadre.tool import tool
from cadre.tools.loading import AnyTool
from sandbox.service_bench import Blobs
from unit.loop.memory_world import MemoryWorld
from unit.test_newer_schema import Delivered
from unit.test_quarantine import MemoryQuarantine

CALL = ToolCall(id="r1_1_0", tree="r1", run="r1", at=1.0, agent="boss", tool="pay", arguments={"sum": 5})
SUBJECT = "cadre.call.0.pay.boss.r1.r1_1_0"


class MemoryEffects:
    """ports.Effects"""

    def __init__(self) -> None:
        self.effect: Effect | None = None
        self.lost_answers = 0
        """So many claims are stored, and their answers never come."""

    async def read(self, tree: str, call: str) -> Effect | None:
        return self.effect

    async def claim(self, claim: EffectClaim) -> int:
        if self.effect is not None:
            raise Fenced("claimed")
        self.effect = Effect(claim, 1, None)
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("claiming", "lost")
        return 1

    async def settle(self, settled: EffectResult) -> None:
        assert self.effect is not None
        if self.effect.result is not None:
            raise Fenced("settled")
        self.effect = Effect(self.effect.claim, self.effect.seq, settled.result)


class Process:
    """An executor `here` with one tool; others that claim calls are `there`."""

    def __init__(self, *, idempotent: bool = False) -> None:
        self.paid: list[int] = []

        @tool(name="pay", idempotent=idempotent)
        async def pay(sum: int) -> str:
            """Pays.

            Args:
                sum: How much.
            """
            self.paid.append(sum)
            return "paid"

        self.tool: AnyTool = pay
        self.world = MemoryWorld()
        self.effects = MemoryEffects()
        self.is_alive: bool | None = False
        in_hand = InHand("here", self.effects, self)
        self.executor = Executor(
            self.effects, self.world.bus, Blobs(), in_hand, MemoryQuarantine(), self.world.clock
        )

    async def has_in_hand(self, tool: str, instance: str, call: str) -> bool | None:
        """ports.Peers"""
        assert instance == "there"
        return self.is_alive

    def claimed_there(self, *, seq: int = Delivered.seq, output: str | None = None) -> None:
        claim = EffectClaim(
            id="r1_1_0:claim", tree="r1", run="r1", at=1.0, call=CALL.id, executor="there", call_seq=seq
        )
        result = None
        if output is not None:
            result = ToolResult(
                id=result_id(CALL.id), tree="r1", run="r1", at=1.0, call=CALL.id, tool="pay", output=output
            )
        self.effects.effect = Effect(claim, 1, result)

    async def handle(self, subject: str = SUBJECT) -> list[object]:
        delivered = Delivered(1, encode(CALL), subject)
        await self.executor.handle(self.tool, delivered)
        return delivered.settled

    def answer(self) -> ToolResult:
        (result,) = self.world.bus.sent
        assert isinstance(result, ToolResult)
        return result


async def test_a_call_is_claimed_run_settled_and_answered() -> None:
    process = Process()
    assert await process.handle() == ["ack"]
    assert (process.paid, process.answer().output, process.answer().executor) == ([5], "paid", "here")
    assert process.effects.effect is not None
    assert process.effects.effect.result == process.answer()


async def test_a_claim_whose_answer_was_lost_is_found_to_be_ours() -> None:
    process = Process()
    process.effects.lost_answers = 1
    assert await process.handle() == ["ack"]
    assert (process.paid, process.answer().output) == ([5], "paid")


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_call_that_a_living_executor_claimed_is_left_alone(idempotent: bool) -> None:
    process = Process(idempotent=idempotent)
    process.claimed_there()
    process.is_alive = True
    assert await process.handle() == []
    assert (process.paid, process.world.bus.sent) == ([], [])


async def test_a_call_whose_executor_died_is_not_run_again() -> None:
    process = Process()
    process.claimed_there()
    assert await process.handle() == ["ack"]
    error = process.answer().error
    assert process.paid == []
    assert error is not None
    assert error.type == "Interrupted"
    assert "executor there stopped while it ran tool 'pay'" in error.message


async def test_an_idempotent_call_whose_executor_died_is_run_again() -> None:
    process = Process(idempotent=True)
    process.claimed_there()
    assert await process.handle() == ["ack"]
    assert (process.paid, process.answer().output) == ([5], "paid")


def of_another_message(process: Process) -> None:
    process.claimed_there(seq=Delivered.seq - 1)


def with_a_result(process: Process) -> None:
    process.claimed_there(output="paid there")


@pytest.mark.parametrize(("claimed", "answers"), [(of_another_message, []), (with_a_result, ["paid there"])])
async def test_a_call_that_was_claimed_before_is_acked_without_being_run(
    claimed: Callable[[Process], None], answers: list[str]
) -> None:
    process = Process()
    claimed(process)
    assert await process.handle() == ["ack"]
    assert process.paid == []
    assert [sent.output for sent in process.world.bus.sent if isinstance(sent, ToolResult)] == answers


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("cadre.call.0.pay.digger.r1.r1_1_0", "a call of agent 'boss' was sent by 'digger': it is not made"),
        ("cadre.call.0.refund.boss.r1.r1_1_0", "a call of 'pay' in the queue of 'refund'"),
    ],
)
async def test_a_call_that_is_not_what_its_subject_says_is_refused(subject: str, why: str) -> None:
    process = Process()
    assert await process.handle(subject) == [why]
    assert (process.paid, process.effects.effect) == ([], None)
    error = process.answer().error
    assert error is not None
    assert error.type == "Poisoned"
    assert why in error.message
