"""What is done with a delivery of a CodeCall: answer, send, ack; and what with one that cannot be read or served."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec

from cadre.delivery.codec import UNREADABLE, unpack_code_call
from cadre.delivery.newer_schema import leave_to_newer
from cadre.delivery.quarantine import Trials
from cadre.delivery.retry import retry
from cadre.errors import NewerSchema, RetryableError, TerminalError
from cadre.ports import Bus, Delivery, Marks
from cadre.protocol.code import CodeExchange
from cadre.protocol.messages import CodeCall, ErrorInfo
from cadre.protocol.topology import Topology
from cadre.spec.agent import NAME
from cadre_sandbox.serving.position import Answer
from cadre_sandbox.serving.request import check
from cadre_sandbox.serving.run_block import Running

log = logging.getLogger("cadre.sandbox")

Offer = Callable[[str], Awaitable[bool]]
"""Whether another process, which keeps the interpreter of this run, has taken the delivery over."""

SENDER = "sandbox"
"""Who an agent's inbox says that the answers are from."""


class Serving:
    """Handles the deliveries of a pool."""

    def __init__(self, running: Running, bus: Bus, marks: Marks, pool: str) -> None:
        self._running = running
        self._bus = bus
        self._pool = pool
        self._trials = Trials(marks, running.clock)

    async def handle(self, delivery: Delivery, offer: Offer | None = None) -> None:
        """Acks once the answer is in the run's inbox. Raises RetryableError: deliver again.

        With `offer`, a call whose interpreter is not here may go to where it is.
        """
        tree = delivery.address.tree
        why = await self._trials.hear(delivery, tree, lambda: self._handle(delivery, offer))
        if why is not None:
            await self._refuse(delivery, why)
            await self._trials.acquit(delivery, tree)

    async def has_place_for(self, delivery: Delivery) -> bool:
        """Whether another process's delivery is best served here."""
        try:
            call = await unpack_code_call(delivery.data, self._running.blobs)
            check(call, delivery.subject, self._pool)
        except (RetryableError, TerminalError) as error:
            log.debug("%s is left to the process that was delivered it: %s", delivery.subject, error)
            return False
        return await self._running.keeping.has_place_for(call)

    async def _handle(self, delivery: Delivery, offer: Offer | None) -> None:
        try:
            call = await retry(
                lambda: unpack_code_call(delivery.data, self._running.blobs), self._running.clock.sleep
            )
            check(call, delivery.subject, self._pool)
            if offer and await self._is_for_others(delivery, call) and await offer(call.run):
                self._running.count("handed_over")
                return
            answer = await self._running.answer(call)
            if answer is not None:
                await self._send(answer, call.agent)
            await delivery.ack()
        except NewerSchema as newer:
            await leave_to_newer(delivery, newer)
        except TerminalError as error:
            await self._refuse(delivery, str(error))

    async def _is_for_others(self, delivery: Delivery, call: CodeCall) -> bool:
        """A run's first code is for anybody; what comes again may have killed whoever was handed it before."""
        begun = call.done > 0 or call.snapshot is not None
        first = delivery.deliveries == 1 and not delivery.retried
        return begun and first and not await self._running.keeping.has_place_for(call)

    async def _refuse(self, delivery: Delivery, reason: str) -> None:
        """Makes the message a dead letter; tells the run so, as far as the message says whom to tell."""
        log.warning("%s given up: %s", delivery.subject, reason)
        call = await self._as_far_as_readable(delivery)
        if call is not None:
            error = ErrorInfo("Poisoned", f"the code cannot be run: {reason}")
            await self._send(self._running.teller.refused(call, error, self._running.clock.now()), call.agent)
        await delivery.term(reason)

    async def _as_far_as_readable(self, delivery: Delivery) -> CodeCall | None:
        """Whom to tell; the subject alone does not say it. None when that is not to be had, or not to be trusted."""
        try:
            call = await retry(
                lambda: unpack_code_call(delivery.data, self._running.blobs), self._running.clock.sleep
            )
        except TerminalError:
            try:
                call = msgspec.json.decode(delivery.data, type=_Head).as_call(self._pool)
            except UNREADABLE:
                return None
        if (call.tree, call.run) != Topology.parse(delivery.subject) or not NAME.fullmatch(call.agent):
            return None
        return call

    async def _send(self, answer: Answer, agent: str) -> None:
        await retry(lambda: self._bus.send(answer, SENDER, to=agent), self._running.clock.sleep)


class _Head(msgspec.Struct):
    """What must be readable in a call for its run to be told that the rest is not."""

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
