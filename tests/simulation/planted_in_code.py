"""Bugs to find in what becomes of code: parts of the sandbox and of the agent's side, each with one rule broken."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from cadre.engine.commands import Command
from cadre.kinds.code.fold import state_of
from cadre.ports import Delivery
from cadre.protocol.code import CodeExchange
from cadre.protocol.messages import CodeAnswer, CodeCall, CodeFinished, CodeYielded, Record
from cadre.runtime.code_calls import CodeCallHandler, HandOver
from cadre.runtime.journaling import Journaling, NewEntry
from cadre.runtime.run_cache import CachedRun
from cadre_sandbox.serving.run_block import BlockTurn, CodeRunner
from cadre_sandbox.serving.warm_pool import Position, RunInterpreter, WarmPool


class TakesAnyAnswer(Journaling):
    """Takes what a sandbox answered to an earlier question for the answer to the one that is open."""

    async def account(self, record: Record, deliveries: int, seq: int, slot: int) -> list[Command]:
        if not isinstance(record, CodeYielded | CodeFinished):
            return await super().account(record, deliveries, seq, slot)

        def decide(held: CachedRun) -> NewEntry | list[Command]:
            code = state_of(held.run).work
            if code is None or not code.since or record.block != code.block:
                raise _AsItShould
            if record.exchange == len(code.exchanges):
                raise _AsItShould
            taken = replace(record, exchange=len(code.exchanges))
            return NewEntry(taken, cause=record.id if record.id not in held.run.seen else f"{record.id}:again")

        try:
            return await self.add_entry(record.id, record.tree, record.run, decide)
        except _AsItShould:
            return await super().account(record, deliveries, seq, slot)


class _AsItShould(Exception):
    """Here the bug does not show."""


class MixesReplies(CodeRunner):
    """Gives the replies of calls that were made at once in its own order."""

    async def answer(self, call: CodeCall) -> CodeAnswer | None:
        return await super().answer(replace(call, exchanges=[_mixed(one) for one in call.exchanges]))


def _mixed(exchange: CodeExchange) -> CodeExchange:
    return replace(exchange, replies=sorted(exchange.replies, key=repr))


class ReadsTheClockAnew(CodeRunner):
    """Does not tell a replay what time it was."""

    async def answer(self, call: CodeCall) -> CodeAnswer | None:
        return await super().answer(replace(call, exchanges=[replace(one, clock=[]) for one in call.exchanges]))


class SharesInterpreters(WarmPool):
    """Gives a run that has no warm interpreter that of another."""

    @asynccontextmanager
    async def lease(self, run: str) -> AsyncIterator[RunInterpreter]:
        async with super().lease(run) as interpreter:
            if interpreter.served is None and self._warm:
                _, other = self._warm.popitem()
                interpreter.session, interpreter._served = other.session, other._served
                other.session = None
            yield interpreter


class KeepsWhatIsWarm(WarmPool):
    """Takes every interpreter of a run for the right one."""

    async def can_continue(self, call: CodeCall) -> bool:
        return call.run in self.warm or await super().can_continue(call)


class RunsOnWhatIsWarm(CodeRunner):
    """Runs the next block in the interpreter that it has, no matter what variables the block is to go on from."""

    async def _turn(self, interpreter: RunInterpreter, call: CodeCall, position: Position) -> BlockTurn:
        served = interpreter.served
        if served is not None and isinstance(served.answer, CodeFinished):
            answer = replace(served.answer, snapshot=call.snapshot)
            interpreter._served = dataclasses.replace(served, answer=answer)
        return await super()._turn(interpreter, call, position)


class StoresOnce(CodeRunner):
    """Takes the variables that it has stored for a run for those of all its blocks."""

    async def _stored(self, call: CodeCall, snapshot: bytes | None, before: bytes | None) -> str | None:
        return await super()._stored(call, snapshot, before if before is None else snapshot)


class SaysItAgain(CodeRunner):
    """Answers with what it said last, if that was about the same block."""

    async def answer(self, call: CodeCall) -> CodeAnswer | None:
        async with self.warm_pool.lease(call.run) as interpreter:
            if interpreter.served is not None and interpreter.served.position.block == call.block:
                return interpreter.served.answer
        return await super().answer(call)


class AcksCodeFirst(CodeCallHandler):
    """Lets go of a block before its outcome is in the run's inbox."""

    async def handle(self, delivery: Delivery, offer: HandOver | None = None) -> None:
        await delivery.ack()
        await super().handle(delivery, offer)


class AcksWhatItHandsOver(CodeCallHandler):
    """Lets go of a delivery for which another process answers now."""

    async def handle(self, delivery: Delivery, offer: HandOver | None = None) -> None:
        await super().handle(delivery, offer)
        await delivery.ack()
