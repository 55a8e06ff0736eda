"""Finds the blobs that a stored message names, in itself and in the blob that it was too large for."""

import re

from cadre.ports import Blobs

_REF = re.compile(rb"blob:[0-9a-f]{64}")


def refs_in(data: bytes) -> set[str]:
    """Returns each `blob:<sha256>` that stands anywhere in the bytes."""
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
