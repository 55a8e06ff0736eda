"""Blobs in a NATS object store, named by the SHA-256 of their content.

Trees may share a blob. Whoever puts it again makes it young, and a removal leaves alone what has become
young since it was judged: both are one fenced write to the object's entry.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from typing import Any, NamedTuple

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.js.object_store import ObjectStore

from cadre.adapters import jetstream
from cadre.errors import BlobMissing, BusUnavailable, Fenced, OutcomeUnknown, UnreadableMessage
from cadre.subjects import Topology

SCHEME = "blob:"

YOUNG = 3600.0
"""Seconds after which a blob that nothing names may be removed: until then somebody may be about to name it."""

_TOUCH_AFTER = YOUNG / 2

_CHUNKS = 64
_REPLICA_PAUSE = 0.05
_REPLICA_TRIES = 100


class _Object(NamedTuple):
    """An object's entry in the store, in the JSON of all NATS clients."""

    seq: int
    at: float
    fields: dict[str, Any]

    @property
    def is_deleted(self) -> bool:
        return bool(self.fields.get("deleted"))


class NatsBlobs:
    """ports.Blobs on the deployment's object store."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._bucket = topology.blob_bucket
        self._stream = f"OBJ_{self._bucket}"
        self._store: ObjectStore | None = None

    async def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        try:
            if not await self._touched(name, len(data)):
                await (await self._open()).put(name, data)
        except nats.errors.Error as error:
            raise OutcomeUnknown("storing a blob", error) from error
        return SCHEME + name

    async def get(self, ref: str) -> bytes:
        name = ref.removeprefix(SCHEME)
        for _ in range(_REPLICA_TRIES):
            found = await self._read(name)
            if found is None or found.is_deleted:
                raise BlobMissing(ref)
            data = await self._content(found)
            if hashlib.sha256(data).hexdigest() == name:
                return data
            # The replica that answered may lag behind, or the blob is being removed or put again.
            await asyncio.sleep(_REPLICA_PAUSE)
        raise BusUnavailable(f"reading {ref}", "its parts are not all there")

    async def remove(self, ref: str, unless_put_since: float | None = None) -> bool:
        """Removes a blob unless it was put at or after that time (Unix seconds); says whether it is gone now.

        Raises RetryableError: a removal cut short is ended by the next one.
        """
        name = ref.removeprefix(SCHEME)
        found = await self._read(name)
        if found is None:
            return True
        seq = found.seq
        if not found.is_deleted:
            if unless_put_since is not None and found.at >= unless_put_since:
                return False
            try:
                # From here on nobody reads it, and whoever puts it again stores it anew.
                seq = await self._replace(name, found, deleted=True)
            except Fenced:
                return False
        chunks = f"$O.{self._bucket}.C.{found.fields['nuid']}"
        await jetstream.purge(self._nc, self._stream, chunks)
        await jetstream.purge(self._nc, self._stream, self._entry(name), seq + 1)
        return True

    async def _touched(self, name: str, size: int) -> bool:
        """Whether the blob is there, and is young now."""
        while True:
            found = await self._read(name)
            if found is None or found.is_deleted or found.fields.get("size") != size:
                return False
            if time.time() - found.at < _TOUCH_AFTER:
                return True
            try:
                await self._replace(name, found, deleted=False)
                return True
            except Fenced:
                continue

    async def _content(self, found: _Object) -> bytes:
        """As much of it as there is."""
        chunks, size = f"$O.{self._bucket}.C.{found.fields['nuid']}", found.fields.get("size") or 0
        data, after = bytearray(), 0
        while len(data) < size:
            query = {"seq": after + 1, "batch": _CHUNKS, "next_by_subj": chunks}
            page = await jetstream.batch(self._nc, self._stream, query)
            if not page:
                break
            after = page[-1].seq
            for held in page:
                data += held.data
        return bytes(data)

    async def _read(self, name: str) -> _Object | None:
        held = await jetstream.last(self._nc, self._stream, self._entry(name))
        if held is None:
            return None
        try:
            return _Object(held.seq, held.at, msgspec.json.decode(held.data, type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise UnreadableMessage(f"object {name} of {self._bucket}: {error}") from error

    async def _replace(self, name: str, found: _Object, *, deleted: bool) -> int:
        """Raises Fenced when the entry has been replaced since it was read."""
        return await jetstream.append(
            self._nc,
            self._entry(name),
            msgspec.json.encode(found.fields | {"deleted": deleted}),
            expect=found.seq,
            headers={jetstream.ROLLUP: "sub"},
        )

    def _entry(self, name: str) -> str:
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    async def _open(self) -> ObjectStore:
        if self._store is None:
            self._store = await self._nc.jetstream().object_store(self._bucket)
        return self._store
