"""Values of the code on the bus: bytes, images, tables and arrays go to the blob store, their references travel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cadre.errors import UnreadableMessage
from cadre.ports import Blobs
from cadre_sandbox.given import ESCAPE, MARK, Value, pack, unpack


async def to_json(value: Value, blobs: Blobs) -> Any:
    """The value as JSON; what JSON does not have stands there as `{"$given": [form, "blob:…"]}`. Raises RetryableError.

    A dict of the code's own that has such a key comes as `{"$dict": …}`.
    """
    data: list[bytes] = []
    packed = pack(value, data)
    if not data:
        return packed
    refs = [await blobs.put(one) for one in data]
    return _swapped(packed, lambda place: [place[0], refs[place[1]]])


async def from_json(value: Any, blobs: Blobs) -> Value:
    """What `to_json` was given. Raises UnreadableMessage, BlobMissing, RetryableError."""
    refs: list[str] = []

    def numbered(place: Any) -> list[Any]:
        match place:
            case [str(form), str(ref)]:
                refs.append(ref)
                return [form, len(refs) - 1]
        raise UnreadableMessage(f"no reference to a value: {place!r}"[:200])

    packed = _swapped(value, numbered)
    data = [await blobs.get(ref) for ref in refs]
    try:
        return unpack(packed, data)
    except ValueError as error:
        raise UnreadableMessage(f"no value: {error}") from None


def _swapped(packed: Any, swap: Callable[[Any], list[Any]]) -> Any:
    if isinstance(packed, list):
        return [_swapped(item, swap) for item in packed]
    if not isinstance(packed, dict):
        return packed
    if packed.keys() == {MARK}:
        return {MARK: swap(packed[MARK])}
    if packed.keys() == {ESCAPE} and isinstance(packed[ESCAPE], dict):
        return {ESCAPE: {key: _swapped(item, swap) for key, item in packed[ESCAPE].items()}}
    return {key: _swapped(item, swap) for key, item in packed.items()}
