"""Answers a CodeCall: in the run's warm interpreter when that is just there, else by replay."""

import logging
from collections import Counter
from dataclasses import replace
from typing import Literal, NamedTuple

from cadre.delivery.retry import retry
from cadre.errors import BlobMissing, RetryableError
from cadre.ports import Blobs, Clock
from cadre.protocol.messages import CodeAnswer, CodeCall, CodeFinished, ErrorInfo
from cadre_sandbox.interpreters.contract import (
    BlockRequest,
    Failed,
    Finished,
    InterpreterLost,
    Outcome,
    SandboxError,
    Yielded,
)
from cadre_sandbox.serving.exchange import (
    AnswerBuilder,
    block_request,
    call_results,
    check_call,
    references_in,
)
from cadre_sandbox.serving.warm_pool import Position, RunInterpreter, Served, WarmPool

log = logging.getLogger("cadre.sandbox")

VARIABLES_GONE = "No variable of earlier code is left: define again what you need."

Count = Literal["warm", "fresh", "again", "handed_over"]

MAX_LOSSES = 3
"""Interpreters that may be lost in one block: code can fake an accident, so the retries are bounded."""


class BlockTurn(NamedTuple):
    """One turn of the code, to its end or its next calls."""

    outcome: Outcome
    notes: tuple[str, ...]
    """Messages to the model once the block has ended: values that differ from what was meant."""
    before: bytes | None
    """The variables that the block began with: what `CodeCall.snapshot` refers to."""


class CodeRunner:
    """Runs the code of all runs that this process serves. `secret` is that of its pool."""

    def __init__(
        self, warm_pool: WarmPool, blobs: Blobs, answer_builder: AnswerBuilder, clock: Clock, secret: bytes
    ) -> None:
        self.warm_pool = warm_pool
        self.blobs = blobs
        self.answer_builder = answer_builder
        self.clock = clock
        self._secret = secret
        self.counts: Counter[str] = Counter()
        """Calls since the start: those that went on in a `warm` interpreter, that were run in a `fresh` one from the
        beginning or `again` from what is recorded, and that were `handed_over` to another process."""
        self.unavailable: str | None = None
        """The reason why no interpreter was available the last time."""

    def count(self, what: Count) -> None:
        """Count a call by how it was served."""
        self.counts[what] += 1

    def handed_over(self) -> None:
        """Note that another process has taken a call over."""
        self.count("handed_over")

    def check(self, call: CodeCall, subject: str, pool: str) -> None:
        """Raise UnreadableMessage for a call that no sandbox could serve."""
        check_call(call, subject, pool)

    async def can_continue(self, call: CodeCall) -> bool:
        """Return True if the call's interpreter is here."""
        return await self.warm_pool.can_continue(call)

    def refused(self, call: CodeCall, error: ErrorInfo) -> CodeFinished:
        """Return the record of a block that was not run to its end."""
        return self.answer_builder.refused(call, error, self.clock.now())

    async def answer(self, call: CodeCall) -> CodeAnswer | None:
        """Run the call's code and return the answer; None if it is not wanted any more. Raises RetryableError,
        TerminalError."""
        async with self.warm_pool.lease(call.run) as interpreter:
            if self.warm_pool.is_over(call.run):
                return None
            position, served = Position.of(call), interpreter.served
            if served is not None and served.position == position:
                log.info("block %s has its answer: said again", call.block)
                return served.answer
            if served is not None and served.knows(position):
                log.info("block %s has gone on since: call %s is dropped", call.block, call.id)
                return None
            if call.deadline is not None and self.clock.now() >= call.deadline:
                text = "the code was not run: its time had passed before"
                if call.done:
                    text = "the code was not run on: its time had passed. The variables are as they were before it"
                return self.answer_builder.refused(call, ErrorInfo("deadline", text), self.clock.now())
            answer = await interpreter.work(self._serve(interpreter, call, position))
            if answer is None:
                log.info("run %s is over: its code was stopped", call.run)
            return answer

    async def _serve(self, interpreter: RunInterpreter, call: CodeCall, position: Position) -> CodeAnswer:
        served = interpreter.served
        try:
            answer, notes = await self._despite_losses(interpreter, call, position)
        except BaseException:
            # Where the interpreter is, is not known any more.
            await interpreter.close()
            raise
        passed = frozenset[Position]()
        if interpreter.served is not None and served is not None and served.call.block == call.block:
            passed = served.passed | {served.position}
        await interpreter.answered(Served(call, position, answer, notes, passed))
        return answer

    async def _despite_losses(
        self, interpreter: RunInterpreter, call: CodeCall, position: Position
    ) -> tuple[CodeAnswer, tuple[str, ...]]:
        """Return the answer and the notes of the block. Runs the code again if its interpreter was losta few times."""
        reason = ""
        for loss in range(1, MAX_LOSSES + 1):
            turn = await self._turn(interpreter, call, position)
            outcome = turn.outcome
            if not isinstance(outcome, InterpreterLost):
                answer = await self._answer(call, outcome, turn)
                if not _goes_on(outcome):
                    await interpreter.close()
                return answer, turn.notes
            reason = outcome.reason
            log.warning("block %s, loss %d of %d: %s", call.block, loss, MAX_LOSSES, reason)
            await interpreter.close()
        text = (
            f"Code execution stopped: its interpreter was lost {MAX_LOSSES} times ({reason})."
            " The variables are as they were before this code. Use less memory, or do less in one block."
        )
        return self.answer_builder.refused(call, ErrorInfo("code-failed", text), self.clock.now()), ()

    async def _turn(self, interpreter: RunInterpreter, call: CodeCall, position: Position) -> BlockTurn:
        session, served = interpreter.session, interpreter.served
        if session is not None and served is not None:
            before = session.snapshot
            if served.resumes(call, position):
                self.count("warm")
                replies = call.exchanges[-1].replies
                results = await retry(lambda: call_results(replies, self.blobs), self.clock.sleep)
                return BlockTurn(await session.resume(results), served.notes, before)
            if served.follows(call):
                self.count("again" if call.done else "warm")
                request, notes = await self._request(call, None)
                return BlockTurn(await session.execute(request), tuple(notes), before)
        self.count("again" if call.done or call.snapshot else "fresh")
        return await self._start_anew(interpreter, call)

    async def _start_anew(self, interpreter: RunInterpreter, call: CodeCall) -> BlockTurn:
        snapshot, ref = None, call.snapshot
        if ref is not None:
            try:
                snapshot = await retry(lambda: self.blobs.get(ref), self.clock.sleep)
            except BlobMissing as error:
                return BlockTurn(self.answer_builder.unreadable_snapshot(str(error)), (), None)
        request, notes = await self._request(call, snapshot)
        try:
            session = await interpreter.start()
        except SandboxError as error:
            self.unavailable = str(error)
            raise RetryableError(f"code cannot be run here: {error}") from error
        self.unavailable = None
        return BlockTurn(await session.execute(request), tuple(notes), snapshot)

    async def _request(self, call: CodeCall, snapshot: bytes | None) -> tuple[BlockRequest, list[str]]:
        return await retry(lambda: block_request(call, snapshot, self.blobs, self._secret), self.clock.sleep)

    async def _answer(self, call: CodeCall, outcome: Yielded | Finished | Failed, turn: BlockTurn) -> CodeAnswer:
        references = await retry(lambda: references_in(call, self.blobs), self.clock.sleep)
        if isinstance(outcome, Yielded):
            yielded = outcome
            return await retry(
                lambda: self.answer_builder.yielded(call, yielded, self.clock.now(), references),
                self.clock.sleep,
            )
        ended = replace(outcome, notes=(*turn.notes, *self._lacks(call), *outcome.notes))
        if isinstance(ended, Failed) and ended.error == "SnapshotUnreadable":
            # The next block would fail in the same way, and so on.
            ended = replace(ended, snapshot=None, notes=(*ended.notes, VARIABLES_GONE))
        snapshot = await self._stored(call, ended.snapshot, turn.before)
        return await retry(
            lambda: self.answer_builder.finished(call, ended, snapshot, self.clock.now(), references),
            self.clock.sleep,
        )

    def _lacks(self, call: CodeCall) -> list[str]:
        """Return a note on modules that the agent's file lets its code import and that this sandbox lacks, behind the
        run's first block."""
        if call.snapshot is not None:
            return []
        missing = ", ".join(self.warm_pool.sandbox.lacks(call.imports))
        if not missing:
            return []
        log.warning("agent %s may import %s, not installed in pool %s", call.agent, missing, call.pool)
        return [f"Not installed in this sandbox, whatever the list of imports says: {missing}."]

    async def _stored(self, call: CodeCall, snapshot: bytes | None, before: bytes | None) -> str | None:
        """Return the reference to the variables after a block that began with those of `before`."""
        if snapshot is None:
            return None
        if snapshot == before:
            return call.snapshot
        return await retry(lambda: self.blobs.put(snapshot), self.clock.sleep)


def _goes_on(outcome: Yielded | Finished | Failed) -> bool:
    """Return whether the interpreter is needed for what comes after the outcome, and fit for it."""
    match outcome:
        case Yielded():
            return True
        case Finished(is_final_answer=True):
            return False
    return outcome.alive
