"""Store objects in a NATS object store in the form that every NATS client reads, each as a whole or not at all; and
remove the chunks that no entry names, left by writers that were killed or cancelled."""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakKeyDictionary

import msgspec
from nats.aio.client import Client

from cadre.adapters.nats.connection.keys import may_remove_objects
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.nats.streams.jetstream import ReplicaTries
from cadre.errors import BusUnavailable, CadreError, Fenced, OutcomeUnknown, RetryableError, UnreadableMessage
from cadre.protocol.topology import Topology

log = logging.getLogger("cadre.objects")

_CHUNK_BYTES = 128 * 1024
"""Bytes, as other clients have it."""

_PAGE = 8
_PAGES_AT_ONCE = 4
"""The limit of pages in flight: a server buffers only so much for a slow client before it cuts the connection."""

_CHUNKS_AT_ONCE = 8

_REPLICA_SECONDS = 5.0
"""For a replica to catch up with the leader that named an entry, or for a removal to end."""

_TIMEOUT_SECONDS = 30.0


class ObjectEntry(NamedTuple):
    """An object's entry in the store, in the JSON of all NATS clients."""

    seq: int
    at: float
    """The time it was written, in Unix seconds by the server's clock."""
    fields: dict[str, Any]

    @property
    def is_deleted(self) -> bool:
        """Return whether the object was removed: its content is gone, or about to go."""
        return bool(self.fields.get("deleted"))

    @property
    def nuid(self) -> str:
        """Return the id that names its chunks."""
        return str(self.fields.get("nuid", ""))

    @property
    def size(self) -> int:
        """Return the size of the content in bytes."""
        return self.fields.get("size") or 0


class _Lanes(NamedTuple):
    """Bounds on what one connection sends and requests at a time, for all its users together."""

    reads: asyncio.Semaphore
    writes: asyncio.Semaphore


_lanes: WeakKeyDictionary[Client, _Lanes] = WeakKeyDictionary()


class NatsObjects:
    """The objects of one bucket. Every method raises RetryableError."""

    def __init__(self, nc: Client, bucket: str) -> None:
        self._nc = nc
        self._bucket = bucket
        self.stream = f"OBJ_{bucket}"

    # --- reading

    async def read(self, name: str) -> ObjectEntry | None:
        """Return the entry as the stream's leader has it; None when it does not exist. Raises UnreadableMessage."""
        held = await jetstream.last(self._nc, self.stream, self.entry(name))
        if held is None:
            return None
        try:
            return ObjectEntry(held.seq, held.at, msgspec.json.decode(held.data, type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise UnreadableMessage(f"object {name} of {self._bucket}: {error}") from error

    async def get(self, name: str, digest: str | None = None) -> bytes | None:
        """Return the content with this SHA-256 (in base64), or with the one in its entry; None when it does not exist.

        Raises BusUnavailable when its parts are not all there in time, or UnreadableMessage.
        """
        async for _ in ReplicaTries(_REPLICA_SECONDS):
            found = await self.read(name)
            if found is None or found.is_deleted:
                return None
            data = await self._content(found)
            if digest_of(data) == (digest or str(found.fields.get("digest")).partition("=")[2]):
                return data
            # The replica that answered may lag behind, or the object is being removed or replaced.
        if await self._is_hollow(name):
            return None
        raise BusUnavailable(f"reading {name}", "its parts are not all there")

    async def _is_hollow(self, name: str) -> bool:
        """Return whether its content was lost: it stays lost until it is stored again."""
        found = await self.read(name)
        return found is not None and not await self.has_content(found) and await self.read(name) == found

    async def has_content(self, found: ObjectEntry) -> bool:
        """Return whether all of its chunks are in the store, as the stream's leader has it."""
        chunks = self.chunks(found.nuid)
        query = {"subjects_filter": chunks}
        answer = await jetstream.ask(self._nc, f"asking for {chunks}", f"STREAM.INFO.{self.stream}", query)
        there = (answer["state"].get("subjects") or {}).get(chunks, 0)
        return bool(there == (found.fields.get("chunks") or 0))

    async def _content(self, found: ObjectEntry) -> bytes:
        """Return as much of the content as there is."""
        data, after = bytearray(), 0
        while len(data) < found.size:
            query = {"seq": after + 1, "batch": _PAGE, "next_by_subj": self.chunks(found.nuid)}
            async with _lanes_of(self._nc).reads:
                page = await jetstream.batch(self._nc, self.stream, query)
            if not page:
                break
            after = page[-1].seq
            for held in page:
                data += held.data
        return bytes(data)

    # --- writing

    async def stage(self, name: str, data: bytes) -> dict[str, Any]:
        """Store the content; returns the fields of its entry, for `commit`."""
        nuid = uuid4().hex
        try:
            chunks = await self._send(self.chunks(nuid), data)
        except CadreError:
            await self.take_back(nuid)
            raise
        return {
            "name": name,
            "options": {"max_chunk_size": _CHUNK_BYTES},
            "bucket": self._bucket,
            "nuid": nuid,
            "size": len(data),
            "mtime": datetime.now(UTC).isoformat(),
            "chunks": chunks,
            "digest": f"SHA-256={digest_of(data)}",
            "deleted": False,
        }

    async def commit(self, staged: dict[str, Any], instead_of: ObjectEntry | None) -> None:
        """Make the object what was staged, and removes the content that it had.

        Raises Fenced when its entry is another one than `instead_of` by now: nothing has changed, and what was staged
        may be committed again or taken back. After OutcomeUnknown do neither: the object may become what was staged.
        """
        name = staged["name"]
        try:
            await self.replace(name, instead_of.seq if instead_of else 0, staged)
        except OutcomeUnknown:
            found = await self.read(name)
            if found is None or found.nuid != staged["nuid"]:
                raise
        if instead_of is not None and not instead_of.is_deleted:
            await self.take_back(instead_of.nuid)

    async def replace(self, name: str, seq: int, fields: dict[str, Any]) -> int:
        """Replace the entry at `seq` (0: there is no entry) and return the new sequence. Raises Fenced when there is
        another."""
        data, headers = msgspec.json.encode(fields), {jetstream.ROLLUP: "sub"}
        return await jetstream.append(self._nc, self.entry(name), data, expect=seq, headers=headers)

    async def take_back(self, nuid: str) -> None:
        """Remove chunks that no entry names (any more). A user that may not remove writes an empty message over them;
        the sweep takes it, as it does everything when this fails."""
        chunks = self.chunks(nuid)
        try:
            if may_remove_objects(self._nc):
                await jetstream.purge(self._nc, self.stream, chunks)
            else:
                await jetstream.append(self._nc, chunks, b"", headers={jetstream.ROLLUP: "sub"})
        except RetryableError as error:
            log.info("%s stays until it is swept up: %s", chunks, error)

    async def _send(self, subject: str, data: bytes) -> int:
        """Publish the chunks and return how many there are. After a failure no more are sent; those on their way are
        awaited."""
        slots = _lanes_of(self._nc).writes
        failed = False

        async def one(at: int) -> int:
            nonlocal failed
            async with slots:
                if failed:
                    return 0
                try:
                    return await jetstream.append(self._nc, subject, data[at : at + _CHUNK_BYTES])
                except CadreError:
                    failed = True
                    raise

        sent = await asyncio.gather(*map(one, range(0, len(data), _CHUNK_BYTES)), return_exceptions=True)
        seqs = []
        for outcome in sent:
            if isinstance(outcome, BaseException):
                raise outcome
            seqs.append(outcome)
        if seqs != sorted(seqs):
            raise BusUnavailable(f"publishing to {subject}", "the parts arrived in another order")
        return len(seqs)

    # --- subjects

    def entry(self, name: str) -> str:
        """Return the subject of an entry."""
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    @property
    def entries(self) -> str:
        """Return the filter for all entries."""
        return f"$O.{self._bucket}.M.*"

    def chunks(self, nuid: str) -> str:
        """Return the subject of the chunks with this id."""
        return f"$O.{self._bucket}.C.{nuid}"


def digest_of(data: bytes) -> str:
    """Return the SHA-256 in base64, as entries have it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


def _lanes_of(nc: Client) -> _Lanes:
    lanes = _lanes.get(nc)
    if lanes is None:
        lanes = _lanes[nc] = _Lanes(asyncio.Semaphore(_PAGES_AT_ONCE), asyncio.Semaphore(_CHUNKS_AT_ONCE))
    return lanes


class NatsSnapshots:
    """Keeps one object per name; the last one saved wins."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._objects = NatsObjects(nc, topology.blob_bucket)

    async def load(self, name: str) -> bytes | None:
        """Return the content; None when it does not exist. Raises BusUnavailable, also while parts of it are
        missing."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return await self._objects.get(name)
        except (RetryableError, UnreadableMessage, TimeoutError) as error:
            raise BusUnavailable(f"loading {name}", str(error) or "it is incomplete") from error

    async def save(self, name: str, data: bytes) -> None:
        """Store the content in the place of what the name held. Raises BusUnavailable."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                staged = await self._objects.stage(name, data)
                while True:
                    try:
                        return await self._objects.commit(staged, await self._objects.read(name))
                    except Fenced:
                        continue
        except (RetryableError, UnreadableMessage, TimeoutError) as error:
            raise BusUnavailable(f"saving {name}", str(error) or "no answer in time") from error


_AT_ONCE = 32


class _Entry(msgspec.Struct):
    nuid: str = ""
    deleted: bool = False


async def sweep(nc: Client, objects: NatsObjects, before: float) -> int:
    """Remove the chunks that no entry names when the last of them was stored before that (Unix seconds of the
    server); returns of how many objects. Raises RetryableError."""
    # In this order: an entry comes after its chunks.
    chunks = await jetstream.subjects(nc, objects.stream, objects.chunks("*"))
    unnamed = set(chunks) - await _named(nc, objects)
    old = [subject for subject in unnamed if await _was_stored_before(nc, objects, subject, before)]
    if not old:
        return 0
    named = await _surely_named(nc, objects)
    swept = [subject for subject in old if subject not in named]
    for subject in swept:
        await jetstream.purge(nc, objects.stream, subject)
    if swept:
        log.info("parts of %d objects that were never stored whole are removed", len(swept))
    return len(swept)


async def _named(nc: Client, objects: NatsObjects) -> set[str]:
    """Return the subjects of chunks that entries name, as any replica has them."""
    entries = [held.data async for held in jetstream.messages(nc, objects.stream, objects.entries)]
    return _chunks_of(objects, entries)


async def _surely_named(nc: Client, objects: NatsObjects) -> set[str]:
    """Return the subjects of chunks that entries name, as the stream's leader has them."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(subject: str) -> bytes:
        async with slots:
            held = await jetstream.last(nc, objects.stream, subject)
            return held.data if held is not None else b""

    subjects = await jetstream.subjects(nc, objects.stream, objects.entries)
    return _chunks_of(objects, await asyncio.gather(*map(one, subjects)))


def _chunks_of(objects: NatsObjects, entries: Iterable[bytes]) -> set[str]:
    found = set()
    for data in entries:
        try:
            entry = msgspec.json.decode(data, type=_Entry)
        except msgspec.DecodeError:
            continue  # no chunks can be found by it
        if not entry.deleted:
            found.add(objects.chunks(entry.nuid))
    return found


async def _was_stored_before(nc: Client, objects: NatsObjects, subject: str, before: float) -> bool:
    """Return whether the last message on the subject is that old; False when there is no message (any more)."""
    held = await jetstream.last(nc, objects.stream, subject)
    return held is not None and held.at < before
