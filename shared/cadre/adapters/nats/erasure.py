"""Removes a whole tree: its lifecycle is recorded first, then its blobs go, then every message on its subjects.

Other processes read the record, the only message of the tree that stays, for a week. Any process may repeat each step
at any time: nothing behind the record is touched.
"""

import logging
import re
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.automations import NatsDefinitions
from cadre.adapters.nats.blobs import NatsBlobs, refs_in
from cadre.adapters.nats.server_clock import SystemClock
from cadre.adapters.nats.sessions import NatsSessions, SessionTurn
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.fenced_value import FencedValue
from cadre.adapters.nats.streams.jetstream import StoredMessage
from cadre.automation.notice import PUSHES
from cadre.delivery.codec import HEADERS, decode
from cadre.errors import BlobMissing, Fenced, NotPermitted, UnreadableMessage
from cadre.ports import Clock
from cadre.protocol.kept import FILES, KeptFile
from cadre.protocol.messages import (
    Lifecycle,
    Spilled,
    Task,
)
from cadre.protocol.topology import Topology, exchange_stream, exchange_subject

log = logging.getLogger("cadre.erasure")

_LOCAL = SystemClock()

LIFECYCLE_SECONDS = 7 * 24 * 3600
"""Seconds for which the lifecycle of a tree is on record."""

_ROOM_BYTES = 8 * 1024
"""Freed at a time for the records that an erasure writes."""


class Belongings(NamedTuple):
    """Everything that a tree has besides its messages."""

    named: set[str]
    """Blobs named within the tree's messages."""
    spilled: set[str]
    """Blobs that hold messages themselves, and so name others."""
    messages: set[int]
    """Sequences of its messages, which dead letters name."""
    exchanges: set[str]
    """Tasks that its runs have given to agents elsewhere, perhaps on NATS."""


class Outstanding(NamedTuple):
    """A durable consumer that has not yet handled all there is for it."""

    stream: str
    filter: str
    handled: int
    """Everything up to this sequence."""


class NatsErasure:
    """The steps of an erasure. Every method raises RetryableError."""

    def __init__(self, nc: Client, topology: Topology, blobs: NatsBlobs, clock: Clock = _LOCAL) -> None:
        self._nc = nc
        self._topology = topology
        self._blobs = blobs
        self._sessions = NatsSessions(nc, topology)
        self._files = NatsDefinitions(nc, topology, FILES, KeptFile)
        self._kept = topology.definitions(FILES)
        self._clock = clock

    async def lifecycle(self, tree: str) -> tuple[int, Lifecycle] | None:
        """Return the last record of the tree's lifecycle and its sequence, never stale; None when there is no
        record."""
        lifecycle, seq = await self._record(tree).read()
        return None if lifecycle is None else (seq, lifecycle)

    async def record(self, lifecycle: Lifecycle, fence: int) -> int:
        """Record what becomes of a tree, after the record at `fence` (0: there is no record).

        Return its sequence. Raises Fenced when another writer was first.
        """
        return await self._record(lifecycle.tree).write(lifecycle, fence)

    def _record(self, tree: str) -> FencedValue[Lifecycle]:
        headers = {**HEADERS, jetstream.ROLLUP: "sub", jetstream.TTL: f"{LIFECYCLE_SECONDS}s"}
        stream, subject = self._topology.stream_of(tree), self._topology.lifecycle(tree)
        return FencedValue(self._nc, stream, subject, Lifecycle, headers)

    async def forget_pushes(self, tree: str) -> None:
        """Remove the addresses to which the task of the tree's root is reported, and their credentials."""
        subject = self._topology.definition(PUSHES, tree)
        await jetstream.purge(self._nc, self._topology.automation_stream, subject)

    async def leave_session(self, agent: str, session: str, user: str | None, run: str) -> None:
        """Have the next turn of a session begin afresh if this was its last run."""
        turn, fence = await self._sessions.read(agent, session, user)
        try:
            if turn is not None and turn.run == run:
                await self._sessions.forget(agent, session, user, fence)
            elif turn is not None and turn.previous == run:
                left = SessionTurn(run=turn.run, at=turn.at)
                await self._sessions.record(agent, session, user, left, fence)
        except Fenced:
            log.debug("session %s of %s has moved on", session, agent)

    async def belongings(self, tree: str, before: int) -> Belongings:
        """Collect what belongs to the tree and is named in its messages below sequence `before`."""
        found = Belongings(set(), set(), set(), set())
        exchange = re.compile(rb'"(?:message_id|task)":"(%s[0-9_]*-[0-9]+)"' % re.escape(tree.encode()))
        stream = self._topology.stream_of(tree)
        for subject in self._topology.subjects_of_tree(tree):
            async for held in jetstream.messages(self._nc, stream, subject):
                if held.seq >= before:
                    break
                found.messages.add(held.seq)
                data, ref = held.data, _spilled(held.data)
                if ref is not None:
                    found.spilled.add(ref)
                    data = await self._spilled_message(ref)
                found.named.update(refs_in(data))
                found.exchanges.update(task.decode() for task in exchange.findall(data))
        found.named.difference_update(found.spilled)
        return found

    async def make_room(self, tree: str) -> bool:
        """Remove some of what was sent to the runs of an ended tree, for its journals have all of it; then entries of
        its journals, but for the first and last of each and those that end a run, so that it still shows as ended.
        Returns False when nothing such is left. What names blobs stays, so that they are found."""
        stream, freed = self._topology.stream_of(tree), 0
        for held_messages in (self._sent(tree), self._inner_entries(tree)):
            async for held in held_messages:
                if refs_in(held.data) or _spilled(held.data) is not None:
                    continue
                await jetstream.delete(self._nc, stream, held.seq)
                freed += len(held.data)
                if freed >= _ROOM_BYTES:
                    return True
        return freed > 0

    def _sent(self, tree: str) -> AsyncIterator[StoredMessage]:
        subject = self._topology.inbox_of_run(tree, "*")
        return jetstream.messages(self._nc, self._topology.stream_of(tree), subject)

    async def _inner_entries(self, tree: str) -> AsyncIterator[StoredMessage]:
        last: dict[str, StoredMessage | None] = {}
        subject = self._topology.journals_of_tree(tree)
        async for held in jetstream.messages(self._nc, self._topology.stream_of(tree), subject):
            inner = last.get(held.subject)
            if inner is not None and b'"type":"run.finished"' not in inner.data:
                yield inner
            last[held.subject] = held if held.subject in last else None

    async def remove_blob(self, ref: str, unless_put_since: float | None) -> bool:
        """See NatsBlobs.remove."""
        return await self._blobs.remove(ref, unless_put_since)

    async def sweep(self) -> None:
        """See NatsBlobs.sweep."""
        await self._blobs.sweep()

    async def purge(self, tree: str, before: int) -> None:
        """Remove the tree's messages below sequence `before`, the journals last."""
        stream = self._topology.stream_of(tree)
        for subject in self._topology.subjects_of_tree(tree):
            await jetstream.purge(self._nc, stream, subject, before)

    async def drop_exchanges(self, tasks: Iterable[str]) -> None:
        """Remove what was said to agents on this NATS server in these tasks, and what they have answered so far."""
        stream, prefix = exchange_stream(self._topology.prefix), self._topology.prefix
        try:
            if await jetstream.stream_info(self._nc, stream) is None:
                return
            for task in tasks:
                await jetstream.purge(self._nc, stream, f"{exchange_subject(prefix, '*', task)}.>")
        except NotPermitted as error:
            log.warning("prompts to agents on NATS stay for a week at most: %s", error)

    async def drop_letters(self, tree: str, messages: set[int]) -> None:
        """Remove the dead letters that are about these messages of the tree."""
        stream = self._topology.stream_of(tree)
        for subject in self._topology.dead_subjects:
            if subject.split(".")[-2] != stream:
                continue
            async for held in jetstream.messages(self._nc, self._topology.dead_stream, subject):
                if _letter_about(held.data) in messages:
                    await jetstream.delete(self._nc, self._topology.dead_stream, held.seq)

    async def has_task(self, tree: str) -> bool:
        """Return whether the task of the tree's root lies in an inbox: then an agent may still take it up."""
        stream, subject = self._topology.stream_of(tree), self._topology.inbox_of_run(tree, tree)
        async for held in jetstream.messages(self._nc, stream, subject):
            if _is_task(held.data) or _spilled(held.data) is not None:
                return True
        return False

    async def awaited(self, besides: str) -> set[str]:
        """Return the blobs named in messages that were not handled yet, which no journal names so far, and those of the
        files that clients keep; those of the tree `besides` do not count."""
        gone = {file.id for file in await self.gone_files()}
        refs: set[str] = set()
        async for held in jetstream.messages(self._nc, self._topology.automation_stream, self._kept):
            if held.subject.rpartition(".")[2] not in gone:
                refs |= refs_in(held.data)
        for shard in range(self._topology.shards):
            for consumer in await self._outstanding(self._topology.stream(shard)):
                async for held in jetstream.messages(self._nc, consumer.stream, consumer.filter, consumer.handled):
                    if self._topology.parse(held.subject)[0] == besides:
                        continue
                    refs |= refs_in(held.data)
                    ref = _spilled(held.data)
                    if ref is not None:
                        refs |= refs_in(await self._spilled_message(ref))
        return refs

    async def gone_files(self) -> list[KeptFile]:
        """Return the kept files that were deleted or have expired, whose contents may still be there."""
        now = self._clock.now()
        return [one for one in await self._files.all() if isinstance(one, KeptFile) and one.is_gone(now)]

    async def forget_file(self, file: KeptFile) -> None:
        """Remove the record of a kept file, the last of it."""
        await self._files.remove(file.id)

    async def _spilled_message(self, ref: str) -> bytes:
        """Return what was too large for its stream."""
        try:
            return await self._blobs.get(ref)
        except BlobMissing:
            log.debug("%s is removed already", ref)
            return b""

    async def _outstanding(self, stream: str) -> list[Outstanding]:
        found: list[Outstanding] = []
        for one in await jetstream.consumers(self._nc, stream):
            if one["name"] in (self._topology.tracer_consumer(), self._topology.notices_consumer()):
                continue  # they follow the journals, however far behind
            config = one["config"]
            if config["ack_policy"] != "explicit" or not one["num_pending"] + one["num_ack_pending"]:
                continue
            handled = one["ack_floor"]["stream_seq"]
            filters = config.get("filter_subjects") or [config.get("filter_subject", ">")]
            found += [Outstanding(stream, subject, handled) for subject in filters]
        return found


def _spilled(data: bytes) -> str | None:
    """Return the blob that holds the message, when the message was too large for its stream."""
    if b'"spilled"' not in data:
        return None
    try:
        return decode(data, Spilled).ref  # type: ignore[no-any-return]
    except UnreadableMessage:
        return None


def _is_task(data: bytes) -> bool:
    try:
        decode(data, Task)
    except UnreadableMessage:
        return False
    return True


class _Letter(msgspec.Struct):
    stream_seq: int = 0


def _letter_about(data: bytes) -> int:
    try:
        return msgspec.json.decode(data, type=_Letter).stream_seq
    except msgspec.DecodeError:
        return 0
