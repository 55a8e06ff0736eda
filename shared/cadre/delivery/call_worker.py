"""Answer calls of tools that are safe to run again, as Cadre's own services offer them; no call is claimed.

A call that is delivered twice is served twice. It has its effect once or changes nothing, and the run takes the first
result. Users' tools are claimed before they run, by the executor of `cadre tools`."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from cadre.delivery.codec import UNREADABLE, unpack_call
from cadre.delivery.quarantine import SUSPECT_CALL_AFTER_DELIVERIES, Quarantine
from cadre.delivery.retry import retry
from cadre.delivery.worker import Job, Misaddressed, Worker, wrong_subject
from cadre.errors import TerminalError
from cadre.ports import Blobs, Bus, Clock, Delivery, QuarantineStore
from cadre.protocol.messages import ErrorInfo, ToolCall, ToolResult
from cadre.protocol.topology import Address, parent_of, result_id

Answer = Callable[[ToolCall, Address], Awaitable[dict[str, Any] | None]]
"""A function that returns the fields `output`, `error` or `blob` of a call's ToolResult, or None when none is awaited.

Raises RetryableError (the call is delivered again) and TerminalError (it becomes a dead letter).
"""


class CallWorker:
    """Handles the deliveries of one service's tools."""

    def __init__(
        self,
        answer: Answer,
        *,
        bus: Bus,
        blobs: Blobs,
        quarantine: QuarantineStore,
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._answer = answer
        self._bus = bus
        self._clock = clock
        self._log = log
        trials = Quarantine(quarantine, clock, suspect_after=SUSPECT_CALL_AFTER_DELIVERIES)
        self._worker = Worker(unpack_call, self._refuse, blobs, trials, clock)
        self.instance = ""
        """The executor that results name."""
        self.on_answer: Callable[[ToolResult], None] = lambda result: None
        """Called with each result once it is sent."""

    async def handle(self, delivery: Delivery) -> None:
        """Ack once the result, if one is awaited, is in the run's inbox. Raises RetryableError: deliver again."""
        await self._worker.handle(delivery, self._serve)

    async def _serve(self, job: Job[ToolCall]) -> bool:
        call = await job.message()
        if why := wrong_subject(call, job.address):
            raise Misaddressed(why)
        started = self._clock.now()
        fields = await self._fields(call, job.address)
        if fields is not None:
            result = self._result(call, started, **fields)
            if call.reply:
                await self._send(result, call.agent)
            elif result.error is not None:
                self._log.warning("call %s: %s", call.id, result.error.message)
            self.on_answer(result)
        return True

    async def _fields(self, call: ToolCall, address: Address) -> dict[str, Any] | None:
        if call.deadline is not None and self._clock.now() >= call.deadline:
            return {"error": too_late(call.tool)}
        return await self._answer(call, address)

    async def _refuse(self, job: Job[ToolCall], error: TerminalError) -> None:
        self._log.warning("%s given up: %s", job.delivery.subject, error)
        call = addressed_call(job.address)
        if call is not None and _is_awaited(job.delivery.data):
            await self._send(self._result(call, 0.0, error=poisoned(call, error)), call.agent)

    async def _send(self, result: ToolResult, agent: str) -> None:
        await retry(lambda: self._bus.send(result, result.tool, to=agent), self._clock.sleep)

    def _result(self, call: ToolCall, started: float, **fields: Any) -> ToolResult:
        return ToolResult(
            id=result_id(call.id),
            tree=call.tree,
            run=call.run,
            at=self._clock.now(),
            call=call.id,
            tool=call.tool,
            executor=self.instance,
            started_at=started,
            **fields,
        )


def addressed_call(address: Address) -> ToolCall | None:
    """Return as much of a call as its subject says: enough to refuse it. None when it names no call of a run."""
    tool, agent, tree, call = address.receiver, address.sender, address.tree, address.leaf
    run = parent_of(call)
    if run is None:
        return None
    return ToolCall(id=call, tree=tree, run=run, at=0.0, agent=agent, tool=tool, arguments={})


def poisoned(call: ToolCall, error: TerminalError) -> ErrorInfo:
    """Return the error of a call that is a dead letter."""
    return ErrorInfo("poisoned", f"the call of tool {call.tool!r} cannot be served: {error}")


def too_late(tool: str) -> ErrorInfo:
    """Return the error of a call that came after its deadline."""
    return ErrorInfo("deadline", f"tool {tool!r} was not run: its time had passed before")


class _ReplyFlag(msgspec.Struct):
    reply: bool = True


def _is_awaited(data: bytes) -> bool:
    """Return whether the message asks for an answer, as far as it can be read."""
    try:
        return msgspec.json.decode(data, type=_ReplyFlag).reply
    except UNREADABLE:
        return True
