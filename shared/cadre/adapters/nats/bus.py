"""Sends messages to inboxes and tools, sets timers, publishes deltas and interrupts."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import assert_never

import nats.errors
from msgspec.structs import replace
from nats.aio.client import Client
from nats.aio.msg import Msg

from cadre.adapters.nats.effects import NatsEffects
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.fenced_value import IN_FLIGHT_PAUSES
from cadre.delivery.code_history import HistoryCutter
from cadre.delivery.codec import HEADERS, decode, encode, pack
from cadre.delivery.persons_order import follows_of, read_record
from cadre.errors import BusUnavailable, Fenced, UnreadableMessage
from cadre.ports import Blobs, Delivery, FoundMessage
from cadre.protocol.deltas import Delta, StreamChunk, cancel_hint
from cadre.protocol.messages import (
    Addressed,
    Cancel,
    CodeCall,
    CodeFinished,
    CodeYielded,
    Decision,
    Edit,
    EffectResult,
    FromPeople,
    Record,
    Report,
    Signal,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
    UserMessage,
)
from cadre.protocol.rollout import slot_receiver
from cadre.protocol.topology import Topology, tree_of
from cadre.telemetry.tracing.ids import traceparent_of

log = logging.getLogger("cadre.nats")


class NatsBus:
    """ports.Bus on the deployment's shards."""

    def __init__(self, nc: Client, topology: Topology, blobs: Blobs) -> None:
        self._nc = nc
        self._topology = topology
        self._blobs = blobs
        self._effects = NatsEffects(nc, topology)
        self._shortened = HistoryCutter(blobs)

    async def start(self, task: Task, sender: str) -> None:
        """Store the task of a root run of the first generation, unless its start is claimed for a later one: raises
        Fenced then, and RetryableError."""
        topology, claim = self._topology, self._topology.start_claim(task.tree)
        subject = topology.inbox(task.agent, sender, task.tree, task.run)
        for pause in (*IN_FLIGHT_PAUSES, 0.0):
            try:
                await self._store(task, subject, fence=0, headers={jetstream.EXPECT_OF: claim})
            except Fenced:
                if await jetstream.last(self._nc, topology.stream_of(task.tree), claim) is not None:
                    raise
                await asyncio.sleep(pause)
            else:
                return
        raise BusUnavailable("starting a run", "others start it too")

    async def send(self, message: Addressed, sender: str, *, to: str | None = None) -> None:
        """Store a message where its receiver finds it. `to` names the agent whose inbox it is for; Task, ToolCall and
        CodeCall know their receiver themselves."""
        match message:
            case ToolCall():
                subject = self._topology.call(message.tool, sender, message.tree, message.id)
            case CodeCall():
                subject = self._topology.code(message.pool, message.tree, message.run)
                message = await self._shortened(message)
            case Task():
                subject = self._topology.inbox(message.agent, sender, message.tree, message.run)
            case (
                ToolResult()
                | Report()
                | Cancel()
                | Decision()
                | Signal()
                | UserMessage()
                | Edit()
                | CodeYielded()
                | CodeFinished()
            ):
                if to is None:
                    raise ValueError(f"a {type(message).__name__} needs the agent whose inbox it is for")
                subject = self._topology.inbox(to, sender, message.tree, message.run)
            case _:
                assert_never(message)
        seq = await self._store(message, subject)
        if isinstance(message, Cancel):
            await self.interrupt(message.tree, cancel_hint(message.run, seq))

    async def send_in_order(self, record: FromPeople, sender: str, *, to: str) -> None:
        """Store a record behind those of people that were sent to the run before it, and have it name the last of them:
        who takes it up takes up those first. Raises RetryableError."""
        stream = self._topology.stream_of(record.tree)
        subject = self._topology.inbox(to, sender, record.tree, record.run)
        while True:
            last = await jetstream.last(self._nc, stream, subject)
            before = await read_record(last.data, self._blobs) if last is not None else None
            named = replace(record, follows=follows_of(record, before, last.seq if last is not None else 0))
            try:
                seq = await self._store(named, subject, fence=last.seq if last is not None else 0)
            except Fenced:
                continue
            if isinstance(record, Cancel):
                await self.interrupt(record.tree, cancel_hint(record.run, seq))
            return

    async def _store(
        self,
        message: Addressed,
        subject: str,
        *,
        fence: int | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        own = {**_traced(message), jetstream.MESSAGE_ID: message.id}
        data = await pack(message, self._blobs)
        return await jetstream.append(self._nc, subject, data, expect=fence, headers={**HEADERS, **own, **headers})

    async def find(self, tree: str, seq: int) -> FoundMessage | None:
        """Return what was sent about the tree and lies at this sequence of its stream, if it does."""
        # The leader: a replica that lags would say that nothing came before.
        found = await jetstream.read(self._nc, self._topology.stream_of(tree), seq)
        return FoundMessage(Topology.address(found[0].subject), found[0].data) if found is not None else None

    async def pass_on(self, delivery: Delivery, record: Record, slot: int) -> None:
        """Store a record once more, in the queue of another revision of its agent."""
        address = delivery.address
        receiver = slot_receiver(address.receiver, slot)
        subject = self._topology.inbox(receiver, address.sender, address.tree, address.leaf)
        headers = HEADERS | {
            **_traced(record),
            # The original has the id of the record: by that the server would drop the copy.
            jetstream.MESSAGE_ID: f"{delivery.seq}@{receiver}",
            jetstream.PASSED_ON: str(delivery.origin),
        }
        if delivery.retried:
            headers[jetstream.RETRIED] = str(delivery.seq)
        await jetstream.append(self._nc, subject, delivery.data, headers=headers)

    async def revoke(self, settled: EffectResult) -> bool:
        """Settle a call in this way unless it is claimed already; else mark its claim, and have its executor stop.
        Return whether it is settled in this way now."""
        is_settled = await self._effects.revoke(settled)
        await self.interrupt(settled.tree, settled.claim.call)
        return is_settled

    async def schedule(self, timer: TimerFired, agent: str, due: float) -> None:
        """Have the timer delivered to the agent's inbox at `due`, in Unix seconds."""
        subject = self._topology.timer(timer.tree, timer.run, timer.name)
        target = self._topology.inbox(agent, "timer", timer.tree, timer.run)
        await jetstream.schedule(self._nc, subject, encode(timer), target, due)

    async def tell(self, tree: str, piece: Delta | StreamChunk) -> None:
        """Publish a piece of an answer for those who look on, or for the program that awaits it; it may be lost."""
        subject = self._topology.chunk if isinstance(piece, StreamChunk) else self._topology.delta
        await self._publish(subject(tree, piece.run), encode(piece))

    async def interrupt(self, tree: str, run: str) -> None:
        """Tell the processes at work on a run or call to stop; it may be lost."""
        await self._publish(self._topology.interrupt(tree), run.encode())

    async def _publish(self, subject: str, data: bytes) -> None:
        try:
            await self._nc.publish(subject, data)
        except nats.errors.Error as error:
            # Nothing depends on these: the journal records the same events a moment later.
            log.debug("not published to %s: %s", subject, error)


def _traced(message: Addressed | TimerFired) -> dict[str, str]:
    """Return the header by which the receiver of work hangs its spans into the trace."""
    return {"traceparent": traceparent_of(message)} if isinstance(message, Task | ToolCall | CodeCall) else {}


async def hear_interrupts(nc: Client, topology: Topology, heard: Callable[[str], None]) -> None:
    """Call `heard` with each hint, as long as the connection lives: the id of a run or call that is to stop early, or
    where a cancellation lies. It saves time and money, and is never the only word of a cancellation."""

    async def on_message(message: Msg) -> None:
        heard(message.data.decode())

    await nc.subscribe(topology.interrupts, cb=on_message)


async def hear_chunks(
    nc: Client, topology: Topology, run: str, heard: Callable[[StreamChunk], None]
) -> Callable[[], Awaitable[None]]:
    """Call `heard` with each piece of a stream that answers a request of the run's program; return the function that
    ends that."""

    async def on_message(message: Msg) -> None:
        try:
            heard(decode(message.data, StreamChunk))
        except UnreadableMessage as error:
            log.debug("chunk on %s left out: %s", message.subject, error)

    subscription = await nc.subscribe(topology.chunk(tree_of(run), run), cb=on_message)

    async def end() -> None:
        if not nc.is_closed:
            await subscription.unsubscribe()

    return end
