"""Values that JSON cannot carry, as bytes with a name for their form; the same on both sides of the wall."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

BinaryForm: TypeAlias = Literal["bytes", "image", "table", "array"]
"""bytes: as they are. image: a file that Pillow reads. table: CSV with a header. array: a `.npy` file."""

BINARY_FORMS: tuple[BinaryForm, ...] = ("bytes", "image", "table", "array")


@dataclass(frozen=True, slots=True)
class BinaryValue:
    """An image, a table, an array or plain bytes.

    The code sees a Pillow image, a DataFrame, a numpy array where these libraries are installed, else the bytes (a
    table: a list of dicts).
    """

    form: BinaryForm
    data: bytes


@dataclass(frozen=True, slots=True)
class FileValue:
    """A file in the blob store. What the code passes on is the reference alone."""

    ref: str
    media_type: str
    name: str
    size: int
    data: bytes | None = field(default=None, compare=False, repr=False)
    """None: not at hand."""


Value: TypeAlias = (
    bool | int | float | str | BinaryValue | FileValue | Sequence["Value"] | Mapping[str, "Value"] | None
)

MAX_JSON_SIZE = 1 << 20
"""Most of one output, or of the arguments of one call, as `json_size` counts."""

MAX_BINARY_BYTES = 64 << 20
"""Most bytes of all `BinaryValue`s of one output, or of the calls of one yield."""

MAX_YIELD_BYTES = 7 << 20
"""Most bytes of the arguments of all calls of one yield as JSON, without `BinaryValue`s. MAX_JSON_SIZE keeps one call
below it, whatever is in it."""

MAX_CALLS = 1_000
"""Most calls of one yield."""

MAX_CLOCK_READINGS = 1_000
"""Readings that are recorded between two yields; a loop that watches the clock shall not fill the journal."""

BINARY_MARKER = "$given"
FILE_MARKER = "$file"
ESCAPE_MARKER = "$dict"
MARKERS = frozenset((BINARY_MARKER, FILE_MARKER, ESCAPE_MARKER))
"""A dict of somebody's own that has such a key stands in one under `ESCAPE_MARKER`."""

UNKNOWN_MEDIA_TYPE = "application/octet-stream"
"""The media type of what is not known."""

BLOB_REF = re.compile(r"blob:[0-9a-f]{64}")


def pack(value: Value, blobs: list[bytes]) -> object:
    """The value as JSON. The bytes of its `BinaryValue`s are appended to `blobs`, and stand in it by position."""
    if isinstance(value, BinaryValue):
        blobs.append(value.data)
        return {BINARY_MARKER: [value.form, len(blobs) - 1]}
    if isinstance(value, FileValue):
        place = None
        if value.data is not None:
            place = len(blobs)
            blobs.append(value.data)
        return {FILE_MARKER: [value.ref, value.media_type, value.name, value.size, place]}
    if isinstance(value, Mapping):
        packed = {key: pack(item, blobs) for key, item in value.items()}
        return packed if MARKERS.isdisjoint(packed) else {ESCAPE_MARKER: packed}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [pack(item, blobs) for item in value]
    return value


def unpack(packed: object, blobs: Sequence[bytes]) -> Value:
    """The value that `pack` made this of. Raises ValueError for what it would not have made; it may come from the
    jail."""
    if isinstance(packed, dict):
        if set(packed) == {BINARY_MARKER}:
            return _unpack_binary(packed[BINARY_MARKER], blobs)
        if set(packed) == {FILE_MARKER}:
            return _unpack_file(packed[FILE_MARKER], blobs)
        escaped = packed[ESCAPE_MARKER] if set(packed) == {ESCAPE_MARKER} else None
        items = escaped if isinstance(escaped, dict) else packed
        return {encodable(str(key)): unpack(item, blobs) for key, item in items.items()}
    if isinstance(packed, list):
        return [unpack(item, blobs) for item in packed]
    if isinstance(packed, str):
        return encodable(packed)
    if packed is None or isinstance(packed, bool | int | float):
        return packed
    raise ValueError(f"{type(packed).__name__} is not a value")


def json_size(value: Value) -> int:
    """About the characters of the value's JSON, `BinaryValue`s left out; at least a sixth of its bytes."""
    if isinstance(value, BinaryValue | FileValue):
        return 0
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(key) + json_size(item) for key, item in value.items()) + len(value)
    if isinstance(value, Sequence):
        return sum(map(json_size, value)) + len(value)
    return value.bit_length() // 3 if isinstance(value, int) else 8


def encodable(text: str) -> str:
    """The text without lone surrogates, which JSON carries and UTF-8 does not."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _unpack_binary(place: object, blobs: Sequence[bytes]) -> BinaryValue:
    match place:
        case [str(form), int(index)] if 0 <= index < len(blobs):
            for known in BINARY_FORMS:
                if form == known:
                    return BinaryValue(known, blobs[index])
    raise ValueError(f"no such bytes: {place!r}"[:200])


def _unpack_file(about: object, blobs: Sequence[bytes]) -> FileValue:
    match about:
        case [str(ref), str(media_type), str(name), int(size), place] if (
            BLOB_REF.fullmatch(ref) and size >= 0
        ):
            media_type, name = encodable(media_type), encodable(name)
            if place is None:
                return FileValue(ref, media_type, name, size)
            if isinstance(place, int) and 0 <= place < len(blobs):
                return FileValue(ref, media_type, name, size, blobs[place])
    raise ValueError(f"no such file: {about!r}"[:200])
