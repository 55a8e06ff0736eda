"""From a CodeCall to its answer: in the run's warm interpreter when it stands just there, else by replay."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import Literal

from cadre.delivery.retry import retry
from cadre.errors import BlobMissing, RetryableError
from cadre.ports import Blobs, Clock
from cadre.protocol.messages import CodeCall, ErrorInfo
from cadre_sandbox.interpreters.contract import Failed, Lost, Outcome, SandboxError, Yielded
from cadre_sandbox.serving.answer import Teller
from cadre_sandbox.serving.position import Answer, follows, mark_of, resumes
from cadre_sandbox.serving.request import request_of, results_of
from cadre_sandbox.serving.warm_pool import Keeping, Seat

log = logging.getLogger("cadre.sandbox")

GONE = "No variable of earlier code is left: define again what you need."

Count = Literal["warm", "fresh", "again", "handed_over"]

LOST = 3
"""Interpreters that may be lost in one block: what code can make look like an accident is not one for ever."""


class Running:
    """What this process does for all runs of its pool."""

    def __init__(self, keeping: Keeping, blobs: Blobs, teller: Teller, clock: Clock) -> None:
        self.keeping = keeping
        self.blobs = blobs
        self.teller = teller
        self.clock = clock
        self.counts: Counter[str] = Counter()
        """Calls since the start: those that went on in a `warm` interpreter, that were run in a `fresh` one from the
        beginning or `again` from what is recorded, and that were `handed_over` to another process."""
        self.trouble: str | None = None
        """Why no interpreter was to be had the last time."""

    def count(self, what: Count) -> None:
        self.counts[what] += 1

    async def answer(self, call: CodeCall) -> Answer | None:
        """None when nobody waits for it. Raises RetryableError, TerminalError."""
        async with self.keeping.seat(call.run) as seat:
            if self.keeping.is_over(call.run):
                return None
            mark = mark_of(call) if seat.is_warm else ""
            if mark and mark == seat.mark:
                log.info("block %s has its answer: said again", call.block)
                return seat.answer
            if mark in seat.passed:
                log.info("block %s has gone on since: call %s is dropped", call.block, call.id)
                return None
            if call.deadline is not None and self.clock.now() >= call.deadline:
                text = "the code was not run: its time had passed before"
                return self.teller.refused(call, ErrorInfo("DeadlineExceeded", text), self.clock.now())
            return await self._interruptibly(seat, call)

    async def _interruptibly(self, seat: Seat, call: CodeCall) -> Answer | None:
        seat.work = work = asyncio.create_task(self._work(seat, call), name=f"code of {call.run}")
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise
        finally:
            seat.work = None
        if work.cancelled():
            log.info("run %s is over: its code was stopped", call.run)
            return None
        return work.result()

    async def _work(self, seat: Seat, call: CodeCall) -> Answer:
        try:
            answer = await self._whole(seat, call)
        except BaseException:
            # Where the interpreter stands is not known any more.
            await seat.close()
            raise
        await seat.stands(call, answer)
        return answer

    async def _whole(self, seat: Seat, call: CodeCall) -> Answer:
        reason = ""
        for lost in range(LOST):
            outcome = await self._turn(seat, call)
            if not isinstance(outcome, Lost):
                return await self._told(seat, call, outcome)
            reason = outcome.reason
            log.warning("block %s, loss %d of %d: %s", call.block, lost + 1, LOST, reason)
            await seat.close()
        text = (
            f"Code execution stopped: its interpreter was lost {LOST} times ({reason})."
            " The variables are as they were before this code. Use less memory, or do less in one block."
        )
        return self.teller.refused(call, ErrorInfo("AgentExecutionError", text), self.clock.now())

    async def _turn(self, seat: Seat, call: CodeCall) -> Outcome:
        session, served, answer = seat.session, seat.served, seat.answer
        if seat.is_warm and session and served and answer:
            if resumes(call, served, answer):
                self.count("warm")
                replies = call.exchanges[-1].replies
                results = await retry(lambda: results_of(replies, self.blobs), self.clock.sleep)
                return await session.resume(results)
            if follows(call, answer):
                self.count("again" if call.done else "warm")
                request, seat.notes = await retry(
                    lambda: request_of(call, None, self.blobs), self.clock.sleep
                )
                return await session.execute(request)
        self.count("again" if call.done or call.snapshot else "fresh")
        return await self._anew(seat, call)

    async def _anew(self, seat: Seat, call: CodeCall) -> Outcome:
        snapshot, ref = None, call.snapshot
        if ref is not None:
            try:
                snapshot = await retry(lambda: self.blobs.get(ref), self.clock.sleep)
            except BlobMissing as error:
                return self.teller.unrestored(str(error))
        request, notes = await retry(lambda: request_of(call, snapshot, self.blobs), self.clock.sleep)
        try:
            session = await seat.fresh()
        except SandboxError as error:
            self.trouble = str(error)
            raise RetryableError(f"code cannot be run here: {error}") from error
        self.trouble = None
        if snapshot is not None and ref is not None:
            seat.kept = snapshot, ref
        seat.notes = notes
        return await session.execute(request)

    async def _told(self, seat: Seat, call: CodeCall, outcome: Outcome) -> Answer:
        assert not isinstance(outcome, Lost)
        if isinstance(outcome, Yielded):
            yielded = outcome
            return await retry(lambda: self.teller.yielded(call, yielded, self.clock.now()), self.clock.sleep)
        ended = replace(outcome, notes=(*seat.notes, *outcome.notes))
        if isinstance(ended, Failed) and ended.error == "SnapshotUnreadable":
            # The next block would fail in the same way, and so on.
            ended = replace(ended, snapshot=None, notes=(*ended.notes, GONE))
        snapshot = await self._stored(seat, ended.snapshot)
        answer = await retry(
            lambda: self.teller.finished(call, ended, snapshot, self.clock.now()), self.clock.sleep
        )
        if answer.is_final_answer or not ended.alive:
            await seat.close()
        return answer

    async def _stored(self, seat: Seat, snapshot: bytes | None) -> str | None:
        if snapshot is None:
            return None
        if seat.kept is None or seat.kept[0] != snapshot:
            ref = await retry(lambda: self.blobs.put(snapshot), self.clock.sleep)
            seat.kept = snapshot, ref
        return seat.kept[1]
