"""Sending messages to inboxes and tools, setting timers, telling deltas."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import assert_never

import nats.errors
from nats.aio.client import Client

from cadre.adapters import jetstream
from cadre.adapters.nats_streams import INBOX_TTL
from cadre.messages import Addressed, Cancel, Delta, Report, Task, TimerFired, ToolCall, ToolResult
from cadre.ports import Blobs
from cadre.subjects import Topology
from cadre.wire import HEADERS, encode, pack

log = logging.getLogger("cadre.nats")


class NatsBus:
    """ports.Bus on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology, blobs: Blobs) -> None:
        self._nc = nc
        self._topology = topology
        self._blobs = blobs

    async def send(self, message: Addressed, sender: str, *, to: str | None = None) -> None:
        """`to` names the agent whose inbox it is for; a Task and a ToolCall know their receiver themselves."""
        match message:
            case ToolCall():
                subject = self._topology.call(message.tool, sender, message.tree, message.id)
            case Task():
                subject = self._topology.inbox(message.agent, sender, message.tree, message.run)
            case ToolResult() | Report() | Cancel():
                if to is None:
                    raise ValueError(f"a {type(message).__name__} needs the agent whose inbox it is for")
                subject = self._topology.inbox(to, sender, message.tree, message.run)
            case _:
                assert_never(message)
        headers = {**HEADERS, jetstream.TTL: INBOX_TTL}
        trace = getattr(message, "trace", None)
        if trace:
            headers["traceparent"] = trace
        await jetstream.append(
            self._nc, subject, await pack(message, self._blobs), message_id=message.id, headers=headers
        )

    async def schedule(self, timer: TimerFired, agent: str, due: float) -> None:
        when = datetime.fromtimestamp(due, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        await jetstream.append(
            self._nc,
            self._topology.timer(timer.tree, timer.run, timer.name),
            encode(timer),
            headers={
                jetstream.SCHEDULE: f"@at {when}",
                jetstream.SCHEDULE_TARGET: self._topology.inbox(agent, "timer", timer.tree, timer.run),
                jetstream.SCHEDULE_TTL: INBOX_TTL,
            },
        )

    async def tell(self, tree: str, delta: Delta) -> None:
        await self._publish(self._topology.delta(tree, delta.run), encode(delta))

    async def interrupt(self, tree: str, run: str) -> None:
        await self._publish(self._topology.interrupt(tree), run.encode())

    async def _publish(self, subject: str, data: bytes) -> None:
        try:
            await self._nc.publish(subject, data)
        except nats.errors.Error as error:
            # Nobody depends on these: the journal tells the same story a moment later.
            log.debug("not told to %s: %s", subject, error)
