"""Serves the calls of the memory's tools: retries until the index answers, or until the call's time is over.

Calls are not claimed: remembering or forgetting twice under one call id has its effect once, and a recall changes
nothing.
"""

import logging
from typing import Any

from cadre.adapters.nats.server_clock import SystemClock
from cadre.delivery.call_worker import CallWorker, too_late
from cadre.delivery.retry import retry
from cadre.ports import Blobs, Bus, Clock, Delivery, QuarantineStore
from cadre.protocol.messages import ToolCall, ToolResult
from cadre.protocol.topology import Address
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Meters
from cadre_memory.index.scopes import Caller, caller_of
from cadre_memory.tools.memories import InvalidCall, Memories

log = logging.getLogger("cadre.memory")


class _TooLate(Exception):
    """The call's deadline has passed: nobody reads the result any more."""


class CallHandler:
    """Handles the deliveries of all tools of the service."""

    def __init__(
        self,
        memories: Memories,
        bus: Bus,
        blobs: Blobs,
        quarantine: QuarantineStore,
        instance: str,
        clock: Clock | None = None,
    ) -> None:
        self._memories = memories
        self._clock: Clock = clock or SystemClock()
        self._calls = CallWorker(
            self._serve, bus=bus, blobs=blobs, quarantine=quarantine, clock=self._clock, log=log
        )
        self._calls.instance = instance
        self._calls.on_answer = self._count
        self.meters = Meters(on=False)

    async def handle(self, delivery: Delivery) -> None:
        """Acks once the memory is durable and the answer, if one is awaited, is in the run's inbox."""
        await self._calls.handle(delivery)

    async def _serve(self, call: ToolCall, address: Address) -> dict[str, Any]:
        caller = caller_of(call, address)
        try:
            return {"output": await retry(lambda: self._in_time(call, caller), self._clock.sleep)}
        except InvalidCall as invalid:
            return {"error": invalid.as_error()}
        except _TooLate:
            return {"error": too_late(call.tool)}

    async def _in_time(self, call: ToolCall, caller: Caller) -> Any:
        now = self._clock.now()
        if call.deadline is not None and now >= call.deadline:
            raise _TooLate
        return await self._memories.call(call.tool, call.arguments, caller, call.at, now)

    def _count(self, result: ToolResult) -> None:
        about = {names.TOOL: result.tool}
        if result.error is not None:
            about[names.ERROR_TYPE] = result.error.type
        self.meters.record(names.MEMORY_DURATION, max(0.0, result.at - result.started_at), about)
