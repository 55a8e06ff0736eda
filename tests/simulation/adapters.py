"""The ports of production code on the simulated server: what cadre.adapters is for NATS."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import math
from collections.abc import Callable

from cadre.delivery.code_history import HistoryCutter
from cadre.delivery.codec import decode, encode
from cadre.delivery.hash_chain import seal
from cadre.errors import BlobMissing, BusUnavailable, Fenced, OutcomeUnknown
from cadre.journal.entry import Entry
from cadre.ports import Appended, Effect, QuarantineRecord, Stored
from cadre.protocol.messages import (
    Addressed,
    CodeCall,
    Delta,
    EffectClaim,
    EffectResult,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
)
from cadre.protocol.topology import Topology
from simulation.faults import Faults
from simulation.loop import EPOCH, Loop, Process
from simulation.server import Message, Server, Stream
from simulation.trace import Trace
from simulation.wire import Wire

_REPLICA_PAUSE = 0.05


class SimClock:
    """ports.Clock: virtual time, as the process's own clock shows it."""

    def __init__(self, loop: Loop, process: Process) -> None:
        self._loop, self._process = loop, process

    def now(self) -> float:
        return EPOCH + self._loop.time() + self._process.skew

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SimJournal:
    """ports.Journal: leader reads of heads, entries before them from replicas that may lag."""

    def __init__(self, wire: Wire, server: Server, topology: Topology, faults: Faults) -> None:
        self._wire, self._server, self._topology, self._faults = wire, server, topology, faults

    async def read(self, tree: str, run: str) -> list[Stored]:
        stream = self._stream(tree)
        subject = self._topology.journal(tree, run)
        head = await self._wire.ask("reading a journal", lambda: stream.last(subject), BusUnavailable)
        if head is None:
            return []
        entry = decode(head.data, Entry)
        wanted, found = list(entry.prev), dict[int, Message]()
        while wanted:
            got = await self._wire.ask(
                "reading entries", functools.partial(self._replica, stream, wanted), BusUnavailable
            )
            found |= {message.seq: message for message in got}
            wanted = [seq for seq in wanted if seq not in found]
            if wanted:
                await asyncio.sleep(_REPLICA_PAUSE)
        before = [Stored(seq, decode(found[seq].data, Entry), len(found[seq].data)) for seq in entry.prev]
        return [*before, Stored(head.seq, entry, len(head.data))]

    async def append(
        self,
        entry: Entry,
        fence: int,
        *,
        before: str = "",
        ends_timer: str | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Appended:
        data, hash_ = seal(entry, before)
        if meanwhile is not None:
            meanwhile()
        stream = self._stream(entry.tree)
        seq = await self._wire.ask(
            "appending", lambda: self._store(stream, entry, data, fence, ends_timer), OutcomeUnknown
        )
        return Appended(seq, len(data), hash_)

    def _store(self, stream: Stream, entry: Entry, data: bytes, fence: int, ends_timer: str | None) -> int:
        seq = stream.append(self._topology.journal(entry.tree, entry.run), data, expect=fence)
        if ends_timer is not None:
            stream.unschedule(self._topology.timer(entry.tree, entry.run, ends_timer))
        return seq

    def _replica(self, stream: Stream, wanted: list[int]) -> list[Message]:
        if self._faults.happens("stale-read"):
            return [stream.messages[seq] for seq in wanted[: len(wanted) // 2]]
        return [stream.messages[seq] for seq in wanted]

    def _stream(self, tree: str) -> Stream:
        return self._server.streams[self._topology.shard(tree)]


class SimBus:
    """ports.Bus: at-least-once sends, schedules, and hints that may be lost."""

    def __init__(
        self,
        wire: Wire,
        server: Server,
        topology: Topology,
        tell_all: Callable[[str], None],
        shortened: HistoryCutter,
    ) -> None:
        self._wire, self._server, self._topology, self._tell_all = wire, server, topology, tell_all
        self._shortened = shortened

    async def send(self, message: Addressed, sender: str, *, to: str | None = None) -> None:
        if isinstance(message, ToolCall):
            subject = self._topology.call(message.tool, sender, message.tree, message.id)
        elif isinstance(message, CodeCall):
            message = await self._shortened(message)
            subject = self._topology.code(message.pool, message.tree, message.run)
        else:
            receiver = message.agent if isinstance(message, Task) else to
            assert receiver is not None, f"nobody to send {message.id} to"
            subject = self._topology.inbox(receiver, sender, message.tree, message.run)
        data, stream = encode(message), self._stream(message.tree)
        await self._wire.ask(
            f"sending {message.id}",
            lambda: stream.append(subject, data, message_id=message.id),
            OutcomeUnknown,
        )

    async def revoke(self, result: ToolResult) -> None:
        settled = revoked(result)
        subject, stream = self._topology.effect(result.tree, result.call), self._stream(result.tree)
        with contextlib.suppress(Fenced):  # claimed already: its executor is told to stop
            await self._wire.ask(
                "revoking", lambda: stream.append(subject, encode(settled), expect=0), OutcomeUnknown
            )
        await self.interrupt(result.tree, result.call)

    async def schedule(self, timer: TimerFired, agent: str, due: float) -> None:
        target = self._topology.inbox(agent, "timer", timer.tree, timer.run)
        subject = self._topology.timer(timer.tree, timer.run, timer.name)
        data, stream = encode(timer), self._stream(timer.tree)
        # The header that carries the time has milliseconds.
        at = math.floor(due * 1000) / 1000 - EPOCH
        await self._wire.ask("scheduling", lambda: stream.schedule(subject, at, target, data), OutcomeUnknown)

    async def interrupt(self, tree: str, run: str) -> None:
        self._wire.post(lambda: self._tell_all(run), "lost-interrupt")

    async def tell(self, tree: str, delta: Delta) -> None:
        """Nobody looks on."""

    def _stream(self, tree: str) -> Stream:
        return self._server.streams[self._topology.shard(tree)]


def revoked(result: ToolResult) -> EffectResult:
    """What stands in the place of a claim once a call is not to be begun any more."""
    fields = {"tree": result.tree, "run": result.run, "at": result.at}
    claim = EffectClaim(id=f"{result.call}:claim", call=result.call, executor="", call_seq=0, **fields)  # type: ignore[arg-type]
    return EffectResult(id=f"{result.call}:effect", claim=claim, claim_seq=0, result=result, **fields)  # type: ignore[arg-type]


class SimEffects:
    """ports.Effects: a claim and a result per call, each fenced."""

    def __init__(self, wire: Wire, server: Server, topology: Topology) -> None:
        self._wire, self._server, self._topology = wire, server, topology

    async def read(self, tree: str, call: str) -> Effect | None:
        subject, stream = self._topology.effect(tree, call), self._stream(tree)
        held = await self._wire.ask("reading an effect", lambda: stream.last(subject), BusUnavailable)
        if held is None:
            return None
        record: EffectClaim | EffectResult = decode(held.data, EffectClaim | EffectResult)
        if isinstance(record, EffectResult):
            return Effect(record.claim, record.claim_seq, record.result)
        return Effect(record, held.seq, None)

    async def claim(self, claim: EffectClaim) -> int:
        return await self._append(claim.tree, claim.call, claim, 0)

    async def settle(self, settled: EffectResult) -> None:
        await self._append(settled.tree, settled.claim.call, settled, settled.claim_seq)

    async def _append(self, tree: str, call: str, record: EffectClaim | EffectResult, fence: int) -> int:
        subject, stream, data = self._topology.effect(tree, call), self._stream(tree), encode(record)
        return await self._wire.ask(
            f"storing {record.id}", lambda: stream.append(subject, data, expect=fence), OutcomeUnknown
        )

    def _stream(self, tree: str) -> Stream:
        return self._server.streams[self._topology.shard(tree)]


class SimQuarantine:
    """ports.QuarantineStore: what is held against a message, on a subject of its own."""

    def __init__(self, wire: Wire, server: Server, topology: Topology) -> None:
        self._wire, self._server, self._topology = wire, server, topology

    async def read(self, tree: str, seq: int) -> tuple[QuarantineRecord, int] | None:
        stream, subject = self._at(tree, seq)
        held = await self._wire.ask("reading a mark", lambda: stream.last(subject), BusUnavailable)
        return None if held is None else (decode(held.data, QuarantineRecord), held.seq)

    async def write(self, tree: str, mark: QuarantineRecord, fence: int) -> int:
        stream, subject = self._at(tree, mark.seq)
        data = encode(mark)
        return await self._wire.ask(
            "marking", lambda: stream.append(subject, data, expect=fence), OutcomeUnknown
        )

    async def clear(self, tree: str, seq: int) -> None:
        stream, subject = self._at(tree, seq)
        await self._wire.ask("clearing a mark", lambda: stream.purge(subject), OutcomeUnknown)

    def _at(self, tree: str, seq: int) -> tuple[Stream, str]:
        return self._server.streams[self._topology.shard(tree)], self._topology.quarantine(tree, seq)


class SimBlobs:
    """ports.Blobs on a dict that all processes share."""

    def __init__(self, wire: Wire, store: dict[str, bytes], trace: Trace) -> None:
        self._wire, self._store, self._trace = wire, store, trace

    async def put(self, data: bytes) -> str:
        ref = f"blob:{hashlib.sha256(data).hexdigest()}"
        await self._wire.ask("storing a blob", lambda: self._store.setdefault(ref, data), OutcomeUnknown)
        return ref

    async def get(self, ref: str) -> bytes:
        data = await self._wire.ask("reading a blob", lambda: self._store.get(ref), BusUnavailable)
        if data is None:
            raise BlobMissing(ref)
        return data
