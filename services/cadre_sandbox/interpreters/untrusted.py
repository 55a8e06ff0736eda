"""Frames of the jail, checked before anything is made of them: whoever is in the jail may have written them."""

import asyncio
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from cadre_sandbox.wire.frames import BrokenFrame, Frame, decode
from cadre_sandbox.wire.values import (
    BINARY_FORMS,
    MAX_BINARY_BYTES,
    MAX_JSON_SIZE,
    json_size,
)

T = TypeVar("T")

MAX_ITEMS = 1_200_000
"""Most items of all lists and objects of one header: what MAX_JSON_SIZE lets honest code say stays below it."""

MAX_BLOBS = 10_000
"""Most blobs of one frame."""

_SMALL_BYTES = 1 << 16
"""A header up to here is decoded at once; a larger one off the event loop."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or the rest of the text where it has no end: else each quote in it would be tried."""


async def read_frame(text: bytes, body: bytes) -> Frame:
    """The frame whose header and blobs these are. Raises BrokenFrame for more items than may be, before they are
    made, and for what does not parse."""
    return await off_loop(len(text), lambda: _read(text, body))


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """What the work returns, done in a thread where the frame that it is about has a header of many bytes."""
    return await asyncio.to_thread(work) if size > _SMALL_BYTES else work()


def check_values(frame: Frame) -> None:
    """Raise BrokenFrame for values that the jail's own checks would not have let out: too large, or with blobs that
    stand in several places, each of which would be stored."""
    if sum(map(len, frame.blobs)) > MAX_BINARY_BYTES:
        raise BrokenFrame(f"values of more than {MAX_BINARY_BYTES} bytes")
    calls = frame.header.get("calls")
    arguments = (
        [one.get("arguments") for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    )
    places: set[int] = set()
    for packed in (frame.header.get("output"), *arguments):
        # In its packed form a value is a little larger than as the jail counts it.
        if json_size(packed) > 2 * MAX_JSON_SIZE:
            raise BrokenFrame(f"a value of more than {2 * MAX_JSON_SIZE} characters")
        for place in _places(packed):
            if place in places:
                raise BrokenFrame("bytes that stand in several places")
            places.add(place)


def _read(text: bytes, body: bytes) -> Frame:
    # Those within texts count as well at first: mostly there are few enough even so.
    if _separators(text, 0, len(text)) > MAX_ITEMS and _has_too_many(text):
        raise BrokenFrame(f"a header of more than {MAX_ITEMS} items")
    frame = decode(text, body)
    if len(frame.blobs) > MAX_BLOBS:
        raise BrokenFrame(f"more than {MAX_BLOBS} blobs")
    return frame


def _separators(text: bytes, start: int, end: int) -> int:
    """About the items between two places of a JSON text."""
    return text.count(b",", start, end) + text.count(b"[", start, end) + text.count(b"{", start, end)


def _has_too_many(text: bytes) -> bool:
    count = at = 0
    for string in _STRING.finditer(text):
        count += _separators(text, at, string.start())
        if count > MAX_ITEMS:
            return True
        at = string.end()
    return count + _separators(text, at, len(text)) > MAX_ITEMS


def _places(packed: Any) -> Iterator[int]:
    """The positions of blobs that stand in a packed value. Raises BrokenFrame for a number that is not finite."""
    layer: list[Any] = [[packed]]
    while layer:
        inner: list[Any] = []
        for item in layer:
            if isinstance(item, list):
                inner += item
            elif isinstance(item, dict):
                match item:
                    case {"$given": [str(form), *places]} if len(item) == 1 and form in BINARY_FORMS:
                        yield from (place for place in places if isinstance(place, int))
                    case {"$file": [*_, int(place)]} if len(item) == 1:
                        yield place
                    case {"$dict": dict(escaped)} if len(item) == 1:
                        inner += escaped.values()
                    case _:
                        inner += item.values()
        if any(isinstance(one, float) and not math.isfinite(one) for one in inner):
            raise BrokenFrame("a number that JSON does not have")
        layer = [one for one in inner if isinstance(one, list | dict)]
