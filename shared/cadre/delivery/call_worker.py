"""Answers the calls of tools that may run again, as services of Cadre's own offer them: nothing is claimed.

A call that is delivered twice is served twice and has its effect once, or changes nothing; the run takes the first
result. Tools of one's own are claimed before they run: that is the executor of `cadre tools`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from cadre.delivery.codec import UNREADABLE, unpack_call
from cadre.delivery.newer_schema import leave_to_newer
from cadre.delivery.quarantine import Trials
from cadre.delivery.retry import retry
from cadre.delivery.sender_check import misplaced
from cadre.errors import NewerSchema, TerminalError, UnreadableMessage
from cadre.ports import Blobs, Bus, Clock, Delivery, Marks
from cadre.protocol.messages import ErrorInfo, ToolCall, ToolResult
from cadre.protocol.topology import parent_of, result_id

Serve = Callable[[ToolCall, str], Awaitable[dict[str, Any] | None]]
"""What comes of a call, given the subject that it came by: fields of its ToolResult, or None when nobody waits for one.

Raises RetryableError (the call is delivered again) and TerminalError (it becomes a dead letter).
"""


class Desk(NamedTuple):
    """What answering needs of the world."""

    bus: Bus
    blobs: Blobs
    marks: Marks
    clock: Clock
    log: logging.Logger


class Answering:
    """Handles the deliveries of one service's tools."""

    def __init__(self, desk: Desk, serve: Serve, instance: str = "") -> None:
        self._bus, self._blobs, marks, self._clock, self._log = desk
        self._serve = serve
        self._trials = Trials(marks, self._clock)
        self.instance = instance
        """Who the results say that they are from."""
        self.on_answer: Callable[[ToolResult], None] = lambda result: None
        """Told of each result once its call is acked."""

    async def handle(self, delivery: Delivery) -> None:
        """Acks once the result, if one is awaited, is in the run's inbox. Raises RetryableError: deliver again."""
        tree = delivery.address.tree
        why = await self._trials.hear(delivery, tree, lambda: self._handle(delivery))
        if why is not None:
            await self._refuse(delivery, why)
            await self._trials.acquit(delivery, tree)

    async def _handle(self, delivery: Delivery) -> None:
        try:
            call = await retry(lambda: unpack_call(delivery.data, self._blobs), self._clock.sleep)
            if why := misplaced(call, delivery.subject):
                raise UnreadableMessage(why)
            started = self._clock.now()
            came = await self._outcome(call, delivery.subject)
            if came is None:
                await delivery.ack()
                return
            result = self._told(call, started, **came)
            if call.reply:
                await self._send(result, call.agent)
            elif result.error is not None:
                self._log.warning("call %s: %s", call.id, result.error.message)
            await delivery.ack()
            self.on_answer(result)
        except NewerSchema as newer:
            await leave_to_newer(delivery, newer)
        except TerminalError as error:
            await self._refuse(delivery, str(error))

    async def _outcome(self, call: ToolCall, subject: str) -> dict[str, Any] | None:
        if call.deadline is not None and self._clock.now() >= call.deadline:
            return {"error": too_late(call.tool)}
        return await self._serve(call, subject)

    async def _refuse(self, delivery: Delivery, reason: str) -> None:
        """Makes the message a dead letter, and tells the run that its call will not be answered otherwise."""
        self._log.warning("%s given up: %s", delivery.subject, reason)
        tool, agent, tree, call = delivery.subject.split(".")[-4:]
        run = parent_of(call)
        if run is not None and _is_awaited(delivery.data):
            asked = ToolCall(id=call, tree=tree, run=run, at=0.0, agent=agent, tool=tool, arguments={})
            error = ErrorInfo("Poisoned", f"the call of tool {tool!r} cannot be served: {reason}")
            await self._send(self._told(asked, 0.0, error=error), agent)
        await delivery.term(reason)

    async def _send(self, result: ToolResult, agent: str) -> None:
        await retry(lambda: self._bus.send(result, result.tool, to=agent), self._clock.sleep)

    def _told(self, call: ToolCall, started: float, **came: Any) -> ToolResult:
        return ToolResult(
            id=result_id(call.id),
            tree=call.tree,
            run=call.run,
            at=self._clock.now(),
            call=call.id,
            tool=call.tool,
            executor=self.instance,
            started_at=started,
            **came,
        )


def too_late(tool: str) -> ErrorInfo:
    return ErrorInfo("DeadlineExceeded", f"tool {tool!r} was not run: its time had passed before")


class _Head(msgspec.Struct):
    reply: bool = True


def _is_awaited(data: bytes) -> bool:
    """Whether the message, as far as it can be read, wants an answer."""
    try:
        return msgspec.json.decode(data, type=_Head).reply
    except UNREADABLE:
        return True
