"""Blobs in a NATS object store, named by the SHA-256 of their content."""

from __future__ import annotations

import hashlib

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.object_store import ObjectStore

from cadre.errors import BlobMissing, BusUnavailable, OutcomeUnknown
from cadre.subjects import Topology

SCHEME = "blob:"


class NatsBlobs:
    """ports.Blobs on the deployment's object store."""

    def __init__(self, nc: Client, topology: Topology) -> None:
        self._nc = nc
        self._bucket = topology.blob_bucket
        self._store: ObjectStore | None = None

    async def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        try:
            store = await self._open()
            try:
                info = await store.get_info(name)
                if info.size == len(data):
                    return SCHEME + name
            except nats.js.errors.NotFoundError:
                pass  # not there yet: the usual case
            await store.put(name, data)
        except nats.errors.Error as error:
            raise OutcomeUnknown("storing a blob", error) from error
        return SCHEME + name

    async def get(self, ref: str) -> bytes:
        try:
            found = await (await self._open()).get(ref.removeprefix(SCHEME))
        except nats.js.errors.NotFoundError as error:
            raise BlobMissing(ref) from error
        except nats.errors.Error as error:
            raise BusUnavailable(f"reading {ref}", error) from error
        return found.data or b""

    async def _open(self) -> ObjectStore:
        if self._store is None:
            self._store = await self._nc.jetstream().object_store(self._bucket)
        return self._store
