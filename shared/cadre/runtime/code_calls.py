"""Handle a delivery of a CodeCall: answer, send, ack; or refuse one that cannot be read or served."""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from cadre.delivery.codec import UNREADABLE, unpack_code_call
from cadre.delivery.quarantine import Quarantine
from cadre.delivery.retry import retry
from cadre.delivery.worker import Job, Worker
from cadre.errors import RetryableError, TerminalError
from cadre.ports import Blobs, Bus, Clock, Delivery, QuarantineStore
from cadre.protocol.code import CodeExchange
from cadre.protocol.messages import CodeAnswer, CodeCall, CodeFinished, ErrorInfo
from cadre.spec.names import NAME

log = logging.getLogger("cadre.sandbox")

HandOver = Callable[[str], Awaitable[bool]]
"""True if another process, which keeps the interpreter of this run, has taken the delivery over."""

SENDER = "sandbox"
"""The sender that stands in the subject of an answer."""


class CodeAnswerer(Protocol):
    """A runner of a pool's code: a sandbox's interpreters, or the processes of a program."""

    @property
    def blobs(self) -> Blobs: ...

    @property
    def clock(self) -> Clock: ...

    def check(self, call: CodeCall, subject: str, pool: str) -> None:
        """Raise UnreadableMessage for a call of this subject that cannot be served here."""
        ...

    async def can_continue(self, call: CodeCall) -> bool:
        """Return True if the call is best served here: what it goes on with is in this process."""
        ...

    async def answer(self, call: CodeCall) -> CodeAnswer | None:
        """Run the call's code and return the answer; None when nothing waits for it. Raises RetryableError,
        TerminalError."""
        ...

    def refused(self, call: CodeCall, error: ErrorInfo) -> CodeFinished:
        """Return the record of a call that is not served."""
        ...

    def handed_over(self) -> None:
        """Note that another process has taken a call over."""
        ...


class CodeCallHandler:
    """Handles the deliveries of a pool."""

    def __init__(self, runner: CodeAnswerer, bus: Bus, quarantine: QuarantineStore, pool: str) -> None:
        self._runner = runner
        self._bus = bus
        self._pool = pool
        self._worker = Worker(
            unpack_code_call, self._refuse, runner.blobs, Quarantine(quarantine, runner.clock), runner.clock
        )

    async def handle(self, delivery: Delivery, offer: HandOver | None = None) -> None:
        """CodeAnswer a call; ack once the answer is in the run's inbox. Raises RetryableError: deliver again.

        With `offer`, a call whose interpreter is not here may go to where it is.
        """
        await self._worker.handle(delivery, lambda job: self._serve(job, offer))

    async def can_continue(self, delivery: Delivery) -> bool:
        """Return whether another process's delivery is best served here."""
        try:
            call = await unpack_code_call(delivery.data, self._runner.blobs)
            self._runner.check(call, delivery.subject, self._pool)
        except (RetryableError, TerminalError) as error:
            log.debug("%s is left to the process that was delivered it: %s", delivery.subject, error)
            return False
        return await self._runner.can_continue(call)

    async def _serve(self, job: Job[CodeCall], offer: HandOver | None) -> bool:
        call = await job.message()
        self._runner.check(call, job.delivery.subject, self._pool)
        if offer and await self._is_for_others(job.delivery, call) and await offer(call.run):
            self._runner.handed_over()
            return False
        answer = await self._runner.answer(call)
        if answer is not None:
            await self._send(answer, call.agent)
        return True

    async def _is_for_others(self, delivery: Delivery, call: CodeCall) -> bool:
        """Return whether to offer the call to other processes. A run's first code is for anybody; a call that comes
        again may have killed the process that it was handed to.
        """
        begun = call.done > 0 or call.snapshot is not None
        first = delivery.deliveries == 1 and not delivery.retried
        return begun and first and not await self._runner.can_continue(call)

    async def _refuse(self, job: Job[CodeCall], error: TerminalError) -> None:
        """Tell the run that its code is given up, as far as the message says whom to tell."""
        log.warning("%s given up: %s", job.delivery.subject, error)
        call = await self._as_far_as_readable(job)
        if call is not None:
            info = ErrorInfo("poisoned", f"the code cannot be run: {error}")
            await self._send(self._runner.refused(call, info), call.agent)

    async def _as_far_as_readable(self, job: Job[CodeCall]) -> CodeCall | None:
        """Return whom to tell, which the subject alone does not say; None when that cannot be read or trusted."""
        try:
            call = await job.message()
        except TerminalError:
            try:
                call = msgspec.json.decode(job.delivery.data, type=_CallHead).as_call(self._pool)
            except UNREADABLE:
                return None
        place = job.address.tree, job.address.leaf
        return call if (call.tree, call.run) == place and NAME.fullmatch(call.agent) else None

    async def _send(self, answer: CodeAnswer, agent: str) -> None:
        await retry(lambda: self._bus.send(answer, SENDER, to=agent), self._runner.clock.sleep)


class _CallHead(msgspec.Struct):
    """The fields of a call that must be readable so that its run can learn that the rest is not."""

    tree: str
    run: str
    agent: str
    block: str
    snapshot: str | None = None
    exchanges: list[msgspec.Raw] = []
    before: int = 0

    def as_call(self, pool: str) -> CodeCall:
        return CodeCall(
            id=f"{self.block}:{self.before + len(self.exchanges)}",
            tree=self.tree,
            run=self.run,
            at=0.0,
            agent=self.agent,
            pool=pool,
            block=self.block,
            code="",
            exchanges=[CodeExchange(calls=[], replies=[])] * len(self.exchanges),
            before=self.before,
            snapshot=self.snapshot,
        )
