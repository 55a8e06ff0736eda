"""Bugs to find in what becomes of code: parts of the sandbox and of the agent's side, each with one rule broken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from cadre.loop.owed import Command
from cadre.ports import Delivery
from cadre.protocol.code import CodeExchange
from cadre.protocol.messages import CodeCall, CodeFinished, CodeYielded, Record
from cadre.runtime.run_cache import Held
from cadre.runtime.runner import Advance, Runner
from cadre_sandbox.interpreters.contract import Outcome
from cadre_sandbox.serving.code_calls import Offer, Serving
from cadre_sandbox.serving.position import Answer
from cadre_sandbox.serving.run_block import Running
from cadre_sandbox.serving.warm_pool import Keeping, Seat


class TakesAnyAnswer(Runner):
    """Takes what a sandbox answered to an earlier question for the answer to the one that is open."""

    async def _account(self, record: Record, deliveries: int, seq: int) -> list[Command]:
        if not isinstance(record, CodeYielded | CodeFinished):
            return await super()._account(record, deliveries, seq)

        def decide(held: Held) -> Advance | list[Command]:
            code = held.run.code
            if code is None or not code.since or record.block != code.block:
                raise _AsItShould
            if record.exchange == len(code.exchanges):
                raise _AsItShould
            taken = replace(record, exchange=len(code.exchanges))
            return Advance(taken, cause=record.id if record.id not in held.run.seen else f"{record.id}:again")

        try:
            return await self._advance(record.id, record.tree, record.run, decide)
        except _AsItShould:
            return await super()._account(record, deliveries, seq)


class _AsItShould(Exception):
    """Here the bug does not show."""


class MixesReplies(Running):
    """Gives the replies of calls that were made at once in an order of its own."""

    async def answer(self, call: CodeCall) -> Answer | None:
        return await super().answer(replace(call, exchanges=[_mixed(one) for one in call.exchanges]))


def _mixed(exchange: CodeExchange) -> CodeExchange:
    return replace(exchange, replies=sorted(exchange.replies, key=repr))


class ReadsTheClockAnew(Running):
    """Does not tell a replay what time it was."""

    async def answer(self, call: CodeCall) -> Answer | None:
        return await super().answer(
            replace(call, exchanges=[replace(one, clock=[]) for one in call.exchanges])
        )


class SharesInterpreters(Keeping):
    """Gives a run that has no warm interpreter that of another."""

    @asynccontextmanager
    async def seat(self, run: str) -> AsyncIterator[Seat]:
        async with super().seat(run) as seat:
            if not seat.is_warm and self._warm:
                _, other = self._warm.popitem()
                seat.session, seat.served, seat.answer = other.session, other.served, other.answer
                other.session = None
            yield seat


class KeepsWhatIsWarm(Keeping):
    """Takes every interpreter of a run for the right one."""

    async def has_place_for(self, call: CodeCall) -> bool:
        return call.run in self.warm or await super().has_place_for(call)


class RunsOnWhatIsWarm(Running):
    """Runs the next block in the interpreter that it has, whatever variables the block is to go on from."""

    async def _turn(self, seat: Seat, call: CodeCall) -> Outcome:
        if seat.is_warm and isinstance(seat.answer, CodeFinished):
            seat.answer = replace(seat.answer, snapshot=call.snapshot)
        return await super()._turn(seat, call)


class StoresOnce(Running):
    """Takes the variables that it has stored for a run for those of all its blocks."""

    async def _stored(self, seat: Seat, snapshot: bytes | None) -> str | None:
        if snapshot is not None and seat.kept is not None:
            seat.kept = snapshot, seat.kept[1]
        return await super()._stored(seat, snapshot)


class SaysItAgain(Running):
    """Answers with what it said last, if that was about the same block."""

    async def answer(self, call: CodeCall) -> Answer | None:
        async with self.keeping.seat(call.run) as seat:
            if seat.is_warm and seat.served and seat.answer and seat.served.block == call.block:
                return seat.answer
        return await super().answer(call)


class AcksCodeFirst(Serving):
    """Lets go of a block before its outcome is in the run's inbox."""

    async def handle(self, delivery: Delivery, offer: Offer | None = None) -> None:
        await delivery.ack()
        await super().handle(delivery, offer)


class AcksWhatItHandsOver(Serving):
    """Lets go of a delivery for which another process answers now."""

    async def handle(self, delivery: Delivery, offer: Offer | None = None) -> None:
        await super().handle(delivery, offer)
        await delivery.ack()
