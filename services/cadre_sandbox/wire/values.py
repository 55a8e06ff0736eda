"""Values that JSON cannot carry, as bytes or as JSON with a name for their form; the same on both sides of the wall."""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

BinaryForm: TypeAlias = Literal["bytes", "image", "table", "array", "json"]
"""bytes: as they are. image: a file that Pillow reads. table: CSV with a header. array: a `.npy` file. json: a value
too large to stand among others, as `dump` writes it."""

BINARY_FORMS: tuple[BinaryForm, ...] = ("bytes", "image", "table", "array", "json")


@dataclass(frozen=True, slots=True)
class BinaryValue:
    """An image, a table, an array or plain bytes.

    The code sees a Pillow image, a DataFrame, a numpy array where these libraries are installed, else the bytes (a
    table: a list of dicts).
    """

    form: BinaryForm
    data: bytes
    exact: bytes | None = None
    """The full value, if `data`, which every reader understands, does not contain all of it. A table: the dump of its
    columns, types and index. An image: TIFF."""


@dataclass(frozen=True, slots=True)
class TaggedValue:
    """A Python value that JSON lacks, as JSON under the name of its form. `FORMS` says what each form holds."""

    form: str
    content: "Value"


@dataclass(frozen=True, slots=True)
class FileValue:
    """A file in the blob store. What the code passes on is the reference alone."""

    ref: str
    media_type: str
    name: str
    size: int
    data: bytes | None = field(default=None, compare=False, repr=False)
    """None: not loaded."""


Value: TypeAlias = (
    bool | int | float | str | BinaryValue | FileValue | TaggedValue | Sequence["Value"] | Mapping[str, "Value"] | None
)

_COMPLEX = re.compile(r"[-+\w.]{1,80}")
_DURATION = re.compile(r"-?P\d{1,9}DT\d{1,5}\.\d{6}S")
_FRACTION = re.compile(r"-?\d{1,4000}/[1-9]\d{0,3999}")
_INTEGER = re.compile(r"-?\d{1,4000}")

FORMS: dict[str, Callable[[object], bool]] = {
    "float": lambda content: content in ("nan", "inf", "-inf"),
    "int": lambda content: isinstance(content, str) and bool(_INTEGER.fullmatch(content)),
    "complex": lambda content: isinstance(content, str) and bool(_COMPLEX.fullmatch(content)),
    "fraction": lambda content: isinstance(content, str) and bool(_FRACTION.fullmatch(content)),
    "timedelta": lambda content: isinstance(content, str) and bool(_DURATION.fullmatch(content)),
    "tuple": lambda content: isinstance(content, list),
    "frozenset": lambda content: isinstance(content, list),
    "dict": lambda content: (
        isinstance(content, list) and all(isinstance(one, list) and len(one) == 2 for one in content)
    ),
}
"""The forms of `TaggedValue`, and whether JSON can be the content of one. int: one of more than 64 bits, in digits.
complex: `1+2j`. fraction: `1/3`. timedelta: an ISO 8601 duration, `P1DT2.500000S`. tuple and frozenset: the items, in
keys only. dict: the pairs of one whose keys are no texts."""

MAX_JSON_SIZE = 1 << 20
"""Most of one output, or of the arguments of one call, as `json_size` counts."""

MAX_BINARY_BYTES = 64 << 20
"""Most bytes of all `BinaryValue`s of one output, or of the calls of one yield."""

MAX_YIELD_BYTES = 7 << 20
"""Most bytes of the arguments of all calls of one yield as JSON, without `BinaryValue`s. MAX_JSON_SIZE keeps one call
below it, regardless of its content."""

MAX_CALLS = 1_000
"""Most calls of one yield."""

MAX_CLOCK_READINGS = 1_000
"""Readings that are recorded between two yields; a loop that watches the clock shall not fill the journal."""

BINARY_MARKER = "$given"
FILE_MARKER = "$file"
ESCAPE_MARKER = "$dict"
MARKERS = frozenset((BINARY_MARKER, FILE_MARKER, ESCAPE_MARKER))
"""A dict of the code that has such a key is nested in one under `ESCAPE_MARKER`."""

UNKNOWN_MEDIA_TYPE = "application/octet-stream"
"""The media type of what is not known."""

_INLINE = "base64:"

BLOB_REF = re.compile(r"blob:[0-9a-f]{64}")


def pack(value: Value, blobs: list[bytes]) -> object:
    """Return the value as JSON. The bytes of its `BinaryValue`s are appended to `blobs`, and stand in it by
    position."""

    def place(data: bytes) -> int:
        blobs.append(data)
        return len(blobs) - 1

    return _pack(value, place)


def dump(value: Value) -> bytes:
    """Return the value as self-contained JSON: bytes are encoded as Base64."""
    packed = _pack(value, lambda data: _INLINE + base64.b64encode(data).decode())
    return json.dumps(packed, ensure_ascii=False, allow_nan=False).encode(errors="replace")


def load(data: bytes) -> Value:
    """Return the value that `dump` made this of. Raises ValueError or RecursionError for what it would not have
    made."""
    return _unpack(json.loads(data), _inline)


def _inline(place: object) -> bytes:
    if not isinstance(place, str) or not place.startswith(_INLINE):
        raise ValueError(f"no such bytes: {place!r}"[:200])
    return base64.b64decode(place.removeprefix(_INLINE), validate=True)


def _pack(value: Value, place: Callable[[bytes], object]) -> object:
    if isinstance(value, BinaryValue):
        exact = [] if value.exact is None else [place(value.exact)]
        return {BINARY_MARKER: [value.form, place(value.data), *exact]}
    if isinstance(value, TaggedValue):
        return {BINARY_MARKER: [value.form, _pack(value.content, place)]}
    if isinstance(value, FileValue):
        at = None if value.data is None else place(value.data)
        return {FILE_MARKER: [value.ref, value.media_type, value.name, value.size, at]}
    if isinstance(value, Mapping):
        packed = {key: _pack(item, place) for key, item in value.items()}
        return packed if MARKERS.isdisjoint(packed) else {ESCAPE_MARKER: packed}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_pack(item, place) for item in value]
    return value


def unpack(packed: object, blobs: Sequence[bytes]) -> Value:
    """Return the value that `pack` made this of. Raises ValueError for what it would not have made; it may come from
    the jail."""

    def fetch(place: object) -> bytes:
        if isinstance(place, int) and 0 <= place < len(blobs):
            return blobs[place]
        raise ValueError(f"no such bytes: {place!r}"[:200])

    return _unpack(packed, fetch)


def _unpack(packed: object, fetch: Callable[[object], bytes]) -> Value:
    if isinstance(packed, dict):
        if set(packed) == {BINARY_MARKER}:
            return _unpack_given(packed[BINARY_MARKER], fetch)
        if set(packed) == {FILE_MARKER}:
            return _unpack_file(packed[FILE_MARKER], fetch)
        escaped = packed[ESCAPE_MARKER] if set(packed) == {ESCAPE_MARKER} else None
        items = escaped if isinstance(escaped, dict) else packed
        return {encodable(str(key)): _unpack(item, fetch) for key, item in items.items()}
    if isinstance(packed, list):
        return [_unpack(item, fetch) for item in packed]
    if isinstance(packed, str):
        return encodable(packed)
    if packed is None or isinstance(packed, bool | int | float):
        return packed
    raise ValueError(f"{type(packed).__name__} is not a value")


def json_size(value: Value) -> int:
    """About the characters of the value's JSON, `BinaryValue`s left out; at least a sixth of its bytes."""
    if isinstance(value, BinaryValue | FileValue):
        return 0
    if isinstance(value, TaggedValue):
        return len(value.form) + json_size(value.content)
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(key) + json_size(item) for key, item in value.items()) + len(value)
    if isinstance(value, Sequence):
        return sum(map(json_size, value)) + len(value)
    return value.bit_length() // 3 if isinstance(value, int) else 8


def encodable(text: str) -> str:
    """Return the text without lone surrogates, which JSON carries and UTF-8 does not."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _unpack_given(given: object, fetch: Callable[[object], bytes]) -> BinaryValue | TaggedValue:
    match given:
        case [str(form), content] if form in FORMS and FORMS[form](content):
            return TaggedValue(form, _unpack(content, fetch))
        case [str(form), place, *more] if len(more) <= 1:
            for known in BINARY_FORMS:
                if form == known:
                    return BinaryValue(known, fetch(place), *map(fetch, more))
    raise ValueError(f"no such value: {given!r}"[:200])


def _unpack_file(about: object, fetch: Callable[[object], bytes]) -> FileValue:
    match about:
        case [str(ref), str(media_type), str(name), int(size), place] if BLOB_REF.fullmatch(ref) and size >= 0:
            media_type, name = encodable(media_type), encodable(name)
            return FileValue(ref, media_type, name, size, None if place is None else fetch(place))
    raise ValueError(f"no such file: {about!r}"[:200])
