"""Executors and claims: whose call is run, whose is left alone, and what is answered after a crash."""

import asyncio
from collections.abc import Callable

import pytest

from cadre.delivery.codec import encode
from cadre.errors import BusUnavailable, Fenced, OutcomeUnknown, RetryableError
from cadre.ports import Effect, QuarantineRecord
from cadre.protocol.messages import EffectClaim, EffectResult, ToolCall, ToolResult
from cadre.protocol.topology import result_id
from cadre.runtime.executor import Executor, InHand
from cadre.tool import tool
from cadre.tools.loading import AnyTool
from harness.memory_ports import MemoryBlobs
from harness.texts import holds
from unit.loop.memory_world import MemoryWorld
from unit.test_newer_schema import Delivered
from unit.test_quarantine import MemoryQuarantine

CALL = ToolCall(id="r1_1_0", tree="r1", run="r1", at=1.0, agent="boss", tool="pay", arguments={"sum": 5})
SUBJECT = "cadre.call.0.pay.boss.r1.r1_1_0"


class MemoryEffects:
    """ports.Effects"""

    def __init__(self) -> None:
        self.effect: Effect | None = None
        self.lost: RetryableError | None = None
        """The next claim is stored, and what comes instead of its answer."""

    async def read(self, claim: EffectClaim) -> Effect | None:
        return self.effect

    async def claim(self, claim: EffectClaim) -> int:
        if self.effect is not None:
            raise Fenced("claimed")
        self.effect = Effect(claim, 1, None)
        if self.lost is not None:
            lost, self.lost = self.lost, None
            raise lost
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
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()

        @tool(name="pay", idempotent=idempotent)
        async def pay(sum: int) -> str:
            """Pays.

            Args:
                sum: How much.
            """
            self.paid.append(sum)
            self.begun.set()
            await self.may_end.wait()
            return "paid"

        self.tool: AnyTool = pay
        self.world = MemoryWorld()
        self.effects = MemoryEffects()
        self.is_alive: bool | None = False
        self.in_hand, self.quarantine = InHand("here", self.effects, self), MemoryQuarantine()
        self.executor = Executor(
            self.effects, self.world.bus, MemoryBlobs(), self.in_hand, self.quarantine, self.world.clock
        )

    async def has_in_hand(self, tool: str, instance: str, call: str) -> bool | None:
        """ports.Peers"""
        assert instance == "there"
        return self.is_alive

    def claimed_there(self, *, seq: int = Delivered.seq, output: str | None = None) -> None:
        claim = EffectClaim(
            id="r1_1_0:claim",
            tree="r1",
            run="r1",
            at=1.0,
            call=CALL.id,
            executor="there",
            call_seq=seq,
            agent=CALL.agent,
            tool=CALL.tool,
        )
        result = None
        if output is not None:
            result = ToolResult(
                id=result_id(CALL.id), tree="r1", run="r1", at=1.0, call=CALL.id, tool="pay", output=output
            )
        self.effects.effect = Effect(claim, 1, result)

    async def handle(self, subject: str = SUBJECT, deliveries: int = 1, *, retried: bool = False) -> list[object]:
        delivered = Delivered(deliveries, encode(CALL), subject)
        delivered.retried = retried
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


@pytest.mark.parametrize("lost", [OutcomeUnknown("claiming", "lost"), BusUnavailable("claiming", "down")])
async def test_a_claim_whose_answer_was_lost_is_found_to_be_ours(lost: RetryableError) -> None:
    process = Process()
    process.effects.lost = lost
    assert await process.handle() == ["ack"]
    assert (process.paid, process.answer().output) == ([5], "paid")
    assert not process.in_hand.has(CALL.id)


async def test_a_call_that_was_claimed_and_dropped_is_not_in_hand() -> None:
    process = Process()
    process.effects.lost = BusUnavailable("claiming", "the connection went")
    process.world.clock.running.clear()
    dropped = asyncio.create_task(process.handle())
    await process.world.clock.asleep.wait()
    assert process.in_hand.has(CALL.id)
    dropped.cancel()
    await asyncio.wait({dropped})
    assert not process.in_hand.has(CALL.id)
    process.world.clock.running.set()
    process.world.clock.time += 1
    assert await process.handle() == ["ack"]
    error = process.answer().error
    assert error is not None
    assert (error.type, process.paid) == ("Interrupted", [])


async def test_a_call_that_is_in_work_here_is_not_taken_for_left_by_a_dead_executor() -> None:
    process = Process()
    process.may_end.clear()
    at_work = asyncio.create_task(process.handle())
    await process.begun.wait()
    process.world.clock.time += 1
    assert await process.handle(retried=True) == []
    process.may_end.set()
    assert await at_work == ["ack"]
    assert not process.in_hand.has(CALL.id)
    assert await process.handle(retried=True) == ["ack"]
    assert process.paid == [5]
    assert [sent.output for sent in process.world.bus.sent if isinstance(sent, ToolResult)] == ["paid"] * 2


@pytest.mark.parametrize("output", [None, "paid there"])
async def test_what_becomes_of_a_call_whose_executors_died_is_kept_and_told(output: str | None) -> None:
    """A result that was kept is sent no matter what they died of; else a refusal is, and a zombie reports the same."""
    process = Process()
    process.claimed_there(output=output)
    process.quarantine.held[Delivered.seq] = (QuarantineRecord(seq=Delivered.seq, attempts_alone=99), 1)
    [why] = await process.handle(deliveries=99)
    assert why != "ack"
    assert process.effects.effect is not None
    assert process.effects.effect.result == process.answer()
    assert (process.paid, process.answer().output) == ([], output)
    error = process.answer().error
    assert (error is None) if output else (error is not None and error.type == "Poisoned")


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
    assert "'pay'" in error.message


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
    ("subject", "named"),
    [
        ("cadre.call.0.pay.digger.r1.r1_1_0", ["'boss'", "'digger'"]),
        ("cadre.call.0.refund.boss.r1.r1_1_0", ["'pay'", "'refund'"]),
    ],
)
async def test_a_call_that_is_not_what_its_subject_says_is_refused(subject: str, named: list[str]) -> None:
    process = Process()
    (why,) = map(str, await process.handle(subject))
    assert holds(why, *named)
    assert (process.paid, process.effects.effect) == ([], None)
    error = process.answer().error
    assert error is not None
    assert error.code == "poisoned"
    assert why in error.message
