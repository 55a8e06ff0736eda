"""The ports of `cadre.ports` on streams in memory: what `cadre.adapters.nats` is for a NATS server.

How a process reaches the streams is its `Wire`: that of a test team stores at once, a simulation's is slow and lossy.
"""

import asyncio
import contextlib
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from cadre.delivery.code_history import HistoryCutter
from cadre.delivery.codec import decode, decode_record, encode
from cadre.delivery.hash_chain import seal, whole_journal
from cadre.delivery.persons_order import follows_of
from cadre.delivery.retry import store_surely
from cadre.errors import BlobMissing, BusUnavailable, Fenced, OutcomeUnknown
from cadre.journal.entry import Entry
from cadre.ports import Appended, Blobs, Delivery, Effect, FoundMessage, QuarantineRecord, Stored
from cadre.protocol.deltas import Delta, StreamChunk, cancel_hint
from cadre.protocol.files import WorkspaceFile
from cadre.protocol.messages import (
    Addressed,
    Cancel,
    CodeCall,
    EffectClaim,
    EffectResult,
    FromPeople,
    Record,
    Task,
    TimerFired,
    ToolCall,
)
from cadre.protocol.policy import Tally
from cadre.protocol.rollout import slot_receiver
from cadre.protocol.topology import Topology

_REPLICA_PAUSE_SECONDS = 0.05


class KeptMessage(Protocol):
    """A message as a stream keeps it."""

    @property
    def seq(self) -> int: ...

    @property
    def subject(self) -> str: ...

    @property
    def data(self) -> bytes: ...


M = TypeVar("M", bound=KeptMessage, covariant=True)


class Stream(Protocol[M]):
    """One stream of a deployment, with the contract of JetStream."""

    @property
    def messages(self) -> Mapping[int, M]: ...

    def append(
        self,
        subject: str,
        data: bytes,
        *,
        expect: int | None = None,
        message_id: str | None = None,
        origin: int = 0,
    ) -> int:
        """Store a message and return its sequence; `origin` is where one lay that is passed on. Raises Fenced unless
        `expect` is the subject's last one."""
        ...

    def last(self, subject: str) -> M | None: ...

    def purge(self, subject: str) -> None: ...

    def schedule(self, subject: str, due: float, target: str, data: bytes) -> None:
        """Append to `target` at `due`, in Unix seconds; replaces what is scheduled under the subject."""
        ...

    def unschedule(self, subject: str) -> None: ...


Silence = type[BusUnavailable] | type[OutcomeUnknown]
T = TypeVar("T")


class Wire(Protocol):
    """One process's way to the streams."""

    async def ask(self, doing: str, operation: Callable[[], T], silence: Silence) -> T:
        """Return what the server answers. Raises what it refuses with, or `silence`: the outcome is unknown."""
        ...

    def post(self, operation: Callable[[], object], loss: str) -> None:
        """Send something that has no answer; `loss` names the fault that may lose it."""
        ...


class Reach(NamedTuple):
    """The state that the ports of one process share."""

    wire: Wire
    streams: Sequence[Stream[KeptMessage]]
    topology: Topology

    def stream(self, tree: str) -> Stream[KeptMessage]:
        """The stream that holds the tree."""
        return self.streams[self.topology.shard(tree)]


class InMemoryJournal:
    """ports.Journal: reads of heads are never stale, those of the entries before may be."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def read(self, tree: str, run: str) -> list[Stored]:
        stream, wire = self._reach.stream(tree), self._reach.wire
        subject = self._reach.topology.journal(tree, run)
        head = await wire.ask("reading a journal", lambda: stream.last(subject), BusUnavailable)
        if head is None:
            return []
        last = Stored(head.seq, decode(head.data, Entry))
        return await whole_journal(last, lambda seqs: self._get_all(stream, seqs))

    async def last(self, tree: str, run: str) -> int:
        stream, subject = self._reach.stream(tree), self._reach.topology.journal(tree, run)
        head = await self._reach.wire.ask("reading a journal", lambda: stream.last(subject), BusUnavailable)
        return head.seq if head is not None else 0

    async def _get_all(self, stream: Stream[KeptMessage], seqs: Sequence[int]) -> list[Stored]:
        wanted, found = list(seqs), list[KeptMessage]()
        while True:
            missing = list(wanted)
            got = await self._reach.wire.ask(
                "reading entries",
                lambda: self.replica(stream, missing),  # noqa: B023
                BusUnavailable,
            )
            found += got
            wanted = [seq for seq in wanted if all(seq != message.seq for message in got)]
            if not wanted:
                return [Stored(one.seq, decode(one.data, Entry)) for one in found]
            await asyncio.sleep(_REPLICA_PAUSE_SECONDS)

    def replica(self, stream: Stream[KeptMessage], wanted: list[int]) -> list[KeptMessage]:
        """The messages with these sequences, as far as a replica has them."""
        return [stream.messages[seq] for seq in wanted]

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
        stream, topology = self._reach.stream(entry.tree), self._reach.topology
        wire, subject = self._reach.wire, topology.journal(entry.tree, entry.run)

        def take() -> int:
            seq = stream.append(subject, data, expect=fence)
            if ends_timer is not None:
                stream.unschedule(topology.timer(entry.tree, entry.run, ends_timer))
            return seq

        async def store() -> int:
            if meanwhile is not None:
                meanwhile()
            return await wire.ask("appending", take, OutcomeUnknown)

        async def last() -> tuple[int, bytes] | None:
            head = await wire.ask("reading a journal", lambda: stream.last(subject), BusUnavailable)
            return None if head is None else (head.seq, head.data)

        return Appended(await store_surely(store, last, data), hash_)


class InMemoryBus:
    """ports.Bus: at-least-once sends, schedules, and hints that may be lost."""

    def __init__(self, reach: Reach, blobs: Blobs, interrupt_all: Callable[[str], None]) -> None:
        self._reach = reach
        self._shortened = HistoryCutter(blobs)
        self._interrupt_all = interrupt_all

    async def send(self, message: Addressed, sender: str, *, to: str | None = None) -> None:
        topology = self._reach.topology
        if isinstance(message, ToolCall):
            subject = topology.call(message.tool, sender, message.tree, message.id)
        elif isinstance(message, CodeCall):
            message = await self._shortened(message)
            subject = topology.code(message.pool, message.tree, message.run)
        else:
            receiver = message.agent if isinstance(message, Task) else to
            assert receiver is not None, f"no recipient for {message.id} to"
            subject = topology.inbox(receiver, sender, message.tree, message.run)
        data, stream, id_ = encode(message), self._reach.stream(message.tree), message.id
        seq = await self._reach.wire.ask(
            f"sending {id_}", lambda: stream.append(subject, data, message_id=id_), OutcomeUnknown
        )
        if isinstance(message, Cancel):
            await self.interrupt(message.tree, cancel_hint(message.run, seq))

    async def send_in_order(self, record: FromPeople, sender: str, *, to: str) -> None:
        """As NatsBus does it."""
        stream = self._reach.stream(record.tree)
        subject = self._reach.topology.inbox(to, sender, record.tree, record.run)

        def store() -> int:
            last = stream.last(subject)
            before, seq = (decode_record(last.data), last.seq) if last is not None else (None, 0)
            named = msgspec.structs.replace(record, follows=follows_of(record, before, seq))
            return stream.append(subject, encode(named), message_id=record.id)

        seq = await self._reach.wire.ask(f"sending {record.id}", store, OutcomeUnknown)
        if isinstance(record, Cancel):
            await self.interrupt(record.tree, cancel_hint(record.run, seq))

    async def find(self, tree: str, seq: int) -> FoundMessage | None:
        stream = self._reach.stream(tree)
        found = await self._reach.wire.ask("finding", lambda: stream.messages.get(seq), BusUnavailable)
        return FoundMessage(Topology.address(found.subject), found.data) if found is not None else None

    async def pass_on(self, delivery: Delivery, record: Record, slot: int) -> None:
        address, stream = delivery.address, self._reach.stream(record.tree)
        receiver = slot_receiver(address.receiver, slot)
        subject = self._reach.topology.inbox(receiver, address.sender, address.tree, address.leaf)
        id_, origin = f"{delivery.seq}@{receiver}", delivery.origin
        await self._reach.wire.ask(
            f"passing on {record.id}",
            lambda: stream.append(subject, delivery.data, message_id=id_, origin=origin),
            OutcomeUnknown,
        )

    async def revoke(self, settled: EffectResult) -> bool:
        claim, is_settled = settled.claim, True
        try:
            await store_effect(self._reach, claim, settled, 0)
        except Fenced:  # claimed already: it is not run again, and its executor is asked to stop
            known = await InMemoryEffects(self._reach).read(claim)
            is_settled = known is not None and known.result == settled.result
            if known is not None and known.result is None and not known.claim.revoked:
                with contextlib.suppress(Fenced):
                    revoked = msgspec.structs.replace(known.claim, revoked=True)
                    await store_effect(self._reach, claim, revoked, known.seq)
        await self.interrupt(settled.tree, claim.call)
        return is_settled

    async def schedule(self, timer: TimerFired, agent: str, due: float) -> None:
        topology, stream = self._reach.topology, self._reach.stream(timer.tree)
        target = topology.inbox(agent, "timer", timer.tree, timer.run)
        subject = topology.timer(timer.tree, timer.run, timer.name)
        # The header that carries the time has milliseconds.
        at = math.floor(due * 1000) / 1000
        await self._reach.wire.ask(
            "scheduling", lambda: stream.schedule(subject, at, target, encode(timer)), OutcomeUnknown
        )

    async def interrupt(self, tree: str, run: str) -> None:
        self._reach.wire.post(lambda: self._interrupt_all(run), "lost-interrupt")

    async def tell(self, tree: str, piece: Delta | StreamChunk) -> None:
        """Do nothing: no client watches."""


async def store_effect(reach: Reach, claim: EffectClaim, record: EffectClaim | EffectResult, fence: int) -> int:
    """Store the claim of a call, or what came of it, behind the message at `fence`; returns its sequence."""
    stream = reach.stream(claim.tree)
    return await reach.wire.ask(
        f"storing {record.id}",
        lambda: stream.append(effect_subject(reach, claim), encode(record), expect=fence),
        OutcomeUnknown,
    )


def effect_subject(reach: Reach, claim: EffectClaim) -> str:
    return reach.topology.effect(claim.tree, claim.call, claim.agent, claim.tool)


class InMemoryEffects:
    """ports.Effects: a claim and a result per call, each fenced."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def read(self, claim: EffectClaim) -> Effect | None:
        subject, stream = effect_subject(self._reach, claim), self._reach.stream(claim.tree)
        held = await self._reach.wire.ask("reading an effect", lambda: stream.last(subject), BusUnavailable)
        if held is None:
            return None
        record: EffectClaim | EffectResult = decode(held.data, EffectClaim | EffectResult)
        if isinstance(record, EffectResult):
            return Effect(record.claim, record.claim_seq, record.result)
        return Effect(record, held.seq, None)

    async def claim(self, claim: EffectClaim) -> int:
        return await self._append(claim, claim, 0)

    async def settle(self, settled: EffectResult) -> None:
        await self._append(settled.claim, settled, settled.claim_seq)

    async def _append(self, claim: EffectClaim, record: EffectClaim | EffectResult, fence: int) -> int:
        return await store_effect(self._reach, claim, record, fence)


class InMemoryTallies:
    """ports.Tallies: each on a separate subject."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def read(self, tree: str, name: str) -> tuple[Tally | None, int]:
        stream, subject = self._reach.stream(tree), self._reach.topology.tally(tree, name)
        held = await self._reach.wire.ask("reading a tally", lambda: stream.last(subject), BusUnavailable)
        return (None, 0) if held is None else (decode(held.data, Tally), held.seq)

    async def write(self, tree: str, name: str, tally: Tally, fence: int) -> None:
        stream, subject = self._reach.stream(tree), self._reach.topology.tally(tree, name)
        await self._reach.wire.ask(
            "counting calls", lambda: stream.append(subject, encode(tally), expect=fence), OutcomeUnknown
        )


class InMemoryQuarantine:
    """ports.QuarantineStore: what is held against a message, on a separate subject."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def read(self, tree: str, seq: int) -> tuple[QuarantineRecord, int] | None:
        stream, subject = self._reach.stream(tree), self._reach.topology.quarantine(tree, seq)
        held = await self._reach.wire.ask("reading a mark", lambda: stream.last(subject), BusUnavailable)
        return None if held is None else (decode(held.data, QuarantineRecord), held.seq)

    async def write(self, tree: str, record: QuarantineRecord, fence: int) -> int:
        stream, subject = self._reach.stream(tree), self._reach.topology.quarantine(tree, record.seq)
        return await self._reach.wire.ask(
            "marking", lambda: stream.append(subject, encode(record), expect=fence), OutcomeUnknown
        )

    async def clear(self, tree: str, seq: int) -> None:
        stream, subject = self._reach.stream(tree), self._reach.topology.quarantine(tree, seq)
        await self._reach.wire.ask("clearing a mark", lambda: stream.purge(subject), OutcomeUnknown)


class InMemoryBlobs:
    """ports.Blobs on a dict that all processes share."""

    def __init__(self, wire: Wire, store: dict[str, bytes]) -> None:
        self._wire, self._store = wire, store

    async def put(self, data: bytes) -> str:
        ref = f"blob:{hashlib.sha256(data).hexdigest()}"
        await self._wire.ask("storing a blob", lambda: self._store.setdefault(ref, data), OutcomeUnknown)
        return ref

    async def get(self, ref: str) -> bytes:
        data = await self._wire.ask("reading a blob", lambda: self._store.get(ref), BusUnavailable)
        if data is None:
            raise BlobMissing(ref)
        return data


class InMemoryFileIndex:
    """ports.FileIndex on a dict that all processes share; a file's version is its fence."""

    def __init__(self, wire: Wire, files: dict[tuple[str, str], WorkspaceFile]) -> None:
        self._wire, self._files = wire, files

    async def read(self, tree: str, path: str) -> tuple[WorkspaceFile, int] | None:
        found = await self._wire.ask("reading a file's entry", lambda: self._files.get((tree, path)), BusUnavailable)
        return None if found is None else (found, found.version)

    async def all(self, tree: str) -> list[WorkspaceFile]:
        return await self._wire.ask(
            "listing files",
            lambda: [file for (of, _), file in self._files.items() if of == tree],
            BusUnavailable,
        )

    async def count(self, tree: str) -> int:
        return len(await self.all(tree))

    async def write(self, record: WorkspaceFile, fence: int) -> int:
        def store() -> int:
            known = self._files.get((record.tree, record.path))
            if fence != (known.version if known is not None else 0):
                raise Fenced(record.path)
            self._files[record.tree, record.path] = record
            return record.version

        return await self._wire.ask("storing a file's entry", store, OutcomeUnknown)
