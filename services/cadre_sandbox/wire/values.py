"""Values that JSON cannot carry, as bytes with a name for their form; the same on both sides of the wall."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["bytes", "image", "table", "array"]
"""bytes: as they are. image: a file that Pillow reads. table: CSV with a header. array: a `.npy` file."""

FORMS: tuple[Form, ...] = ("bytes", "image", "table", "array")


@dataclass(frozen=True, slots=True)
class Given:
    """An image, a table, an array or plain bytes. The code sees a Pillow image, a DataFrame, a numpy array where
    these libraries are installed, else the bytes (a table: a list of dicts)."""

    form: Form
    data: bytes


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file in the blob store. What the code passes on is the reference alone."""

    ref: str
    media_type: str
    name: str
    size: int
    data: bytes | None = field(default=None, compare=False, repr=False)
    """None: not at hand."""


Value: TypeAlias = (
    bool | int | float | str | Given | GivenFile | Sequence["Value"] | Mapping[str, "Value"] | None
)

MOST_WEIGHT = 1 << 20
"""Of one output, of the arguments of one call, `Given`s left out; about bytes."""

MOST_BYTES = 64 << 20
"""Of all `Given`s of one output, of the calls of one yield."""

MOST_TOGETHER = 7 << 20
"""Bytes of the arguments of all calls of one yield as JSON, `Given`s left out. The weight of one is bounded so that
it stays below, whatever is in it."""

MOST_CALLS = 1_000
"""Of one yield."""

MARK = "$given"
FILE = "$file"
ESCAPE = "$dict"
MARKS = frozenset((MARK, FILE, ESCAPE))
"""A dict of somebody's own that has such a key stands in one under `ESCAPE`."""

UNKNOWN = "application/octet-stream"
"""The media type of what is not known."""

REF = re.compile(r"blob:[0-9a-f]{64}")


def pack(value: Value, blobs: list[bytes]) -> object:
    """The value as JSON; the bytes of its `Given`s are appended to `blobs` and stand in it by position."""
    if isinstance(value, Given):
        blobs.append(value.data)
        return {MARK: [value.form, len(blobs) - 1]}
    if isinstance(value, GivenFile):
        place = None
        if value.data is not None:
            place = len(blobs)
            blobs.append(value.data)
        return {FILE: [value.ref, value.media_type, value.name, value.size, place]}
    if isinstance(value, Mapping):
        packed = {key: pack(item, blobs) for key, item in value.items()}
        return packed if MARKS.isdisjoint(packed) else {ESCAPE: packed}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [pack(item, blobs) for item in value]
    return value


def unpack(packed: object, blobs: Sequence[bytes]) -> Value:
    """Raises ValueError for what `pack` would not have made; it may come from the jail."""
    if isinstance(packed, dict):
        if set(packed) == {MARK}:
            return _given(packed[MARK], blobs)
        if set(packed) == {FILE}:
            return _file(packed[FILE], blobs)
        escaped = packed[ESCAPE] if set(packed) == {ESCAPE} else None
        items = escaped if isinstance(escaped, dict) else packed
        return {encodable(str(key)): unpack(item, blobs) for key, item in items.items()}
    if isinstance(packed, list):
        return [unpack(item, blobs) for item in packed]
    if isinstance(packed, str):
        return encodable(packed)
    if packed is None or isinstance(packed, bool | int | float):
        return packed
    raise ValueError(f"{type(packed).__name__} is not a value")


def weight(value: Value) -> int:
    """About the characters of its JSON, `Given`s left out; of the bytes at least a sixth."""
    if isinstance(value, Given | GivenFile):
        return 0
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(key) + weight(item) for key, item in value.items()) + len(value)
    if isinstance(value, Sequence):
        return sum(map(weight, value)) + len(value)
    return value.bit_length() // 3 if isinstance(value, int) else 8


def encodable(text: str) -> str:
    """The text without the lone surrogates that JSON carries and UTF-8 does not."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _given(place: object, blobs: Sequence[bytes]) -> Given:
    match place:
        case [str(form), int(index)] if 0 <= index < len(blobs):
            for known in FORMS:
                if form == known:
                    return Given(known, blobs[index])
    raise ValueError(f"no such bytes: {place!r}"[:200])


def _file(about: object, blobs: Sequence[bytes]) -> GivenFile:
    match about:
        case [str(ref), str(media_type), str(name), int(size), place] if REF.fullmatch(ref) and size >= 0:
            media_type, name = encodable(media_type), encodable(name)
            if place is None:
                return GivenFile(ref, media_type, name, size)
            if isinstance(place, int) and 0 <= place < len(blobs):
                return GivenFile(ref, media_type, name, size, blobs[place])
    raise ValueError(f"no such file: {about!r}"[:200])
