"""Store blobs in a NATS object store, named by the SHA-256 of their content.

Trees may share a blob. Storing a blob again makes it young, and a removal spares what has become young since it was
judged: both are one fenced write to the entry of the object.
"""

import base64
import hashlib
import re
import time
from typing import Any

from nats.aio.client import Client

from cadre.adapters.nats.object_store import NatsObjects, ObjectEntry, sweep
from cadre.adapters.nats.server_clock import SystemClock
from cadre.adapters.nats.streams import jetstream
from cadre.errors import BlobMissing, BusFull, Fenced
from cadre.ports import Blobs, Clock
from cadre.protocol.topology import Topology

SCHEME = "blob:"

YOUNG_SECONDS = 3600.0
"""Seconds after which a blob that nothing names may be removed: until then somebody may be about to name it. As long
are chunks let be that no entry names."""

_TOUCH_AFTER_SECONDS = YOUNG_SECONDS / 2

_LOCAL = SystemClock()

_REF = re.compile(rb"blob:[0-9a-f]{64}")


class NatsBlobs:
    """ports.Blobs on the deployment's object store."""

    def __init__(self, nc: Client, topology: Topology, clock: Clock = _LOCAL) -> None:
        self._nc = nc
        self._clock = clock
        self._objects = NatsObjects(nc, topology.blob_bucket)

    async def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        staged: dict[str, Any] | None = None
        began = time.monotonic()
        while True:
            found = await self._objects.read(name)
            try:
                if found is not None and await self._is_whole(found, len(data)):
                    await self._make_young(name, found)
                    if staged is not None and staged["nuid"] != found.nuid:
                        await self._objects.take_back(staged["nuid"])
                    return SCHEME + name
                if staged is None:
                    staged = await self._objects.stage(name, data)
                await self._objects.commit(staged, found)
            except Fenced:
                continue
            if time.monotonic() - began < _TOUCH_AFTER_SECONDS:
                return SCHEME + name
            # So slow that its chunks may have been swept up before the entry named them.
            staged, began = None, time.monotonic()

    async def get(self, ref: str) -> bytes:
        name = ref.removeprefix(SCHEME)
        try:
            digest = base64.urlsafe_b64encode(bytes.fromhex(name)).decode()
        except ValueError as error:
            raise BlobMissing(ref) from error
        data = await self._objects.get(name, digest)
        if data is None:
            raise BlobMissing(ref)
        return data

    async def remove(self, ref: str, unless_put_since: float | None = None) -> bool:
        """Remove a blob unless it was put at or after that time (Unix seconds); returns whether it is gone now.

        Raises RetryableError: a removal cut short is ended by the next one.
        """
        name = ref.removeprefix(SCHEME)
        found = await self._objects.read(name)
        if found is None:
            return True
        seq = found.seq
        if not found.is_deleted:
            if unless_put_since is not None and found.at >= unless_put_since:
                return False
            try:
                # From here on it is not read, and putting it again stores it again.
                seq = await self._mark_deleted(name, found)
            except Fenced:
                return False
        stream = self._objects.stream
        await jetstream.purge(self._nc, stream, self._objects.chunks(found.nuid))
        await jetstream.purge(self._nc, stream, self._objects.entry(name), seq + 1)
        return True

    async def _mark_deleted(self, name: str, found: ObjectEntry) -> int:
        fields = found.fields | {"deleted": True}
        try:
            return await self._objects.replace(name, found.seq, fields)
        except BusFull:
            # Its own content makes the room. A blob without content is put again as well.
            await jetstream.purge(self._nc, self._objects.stream, self._objects.chunks(found.nuid))
            return await self._objects.replace(name, found.seq, fields)

    async def sweep(self) -> int:
        """Remove the chunks in the bucket that no entry names and that are not young; returns of how many objects.
        Raises RetryableError."""
        return await sweep(self._nc, self._objects, self._clock.now() - YOUNG_SECONDS)

    async def _is_whole(self, found: ObjectEntry, size: int) -> bool:
        if found.is_deleted or found.size != size:
            return False
        return await self._objects.has_content(found)

    async def _make_young(self, name: str, found: ObjectEntry) -> None:
        """Rewrite the entry when it is old. Raises Fenced."""
        if self._clock.now() - found.at >= _TOUCH_AFTER_SECONDS:
            await self._objects.replace(name, found.seq, found.fields)


def refs_in(data: bytes) -> set[str]:
    """Return each `blob:<sha256>` that stands anywhere in the bytes."""
    return {match.decode() for match in _REF.findall(data)}


class Noting:
    """Blobs (ports.Blobs) that note in `refs` which blobs are named in what is read through them."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self.refs: set[str] = set()

    async def put(self, data: bytes) -> str:
        return await self._blobs.put(data)

    async def get(self, ref: str) -> bytes:
        data = await self._blobs.get(ref)
        self.refs |= refs_in(data)
        return data
