"""Encode messages as JSON and decode them from any schema version up to this one; large ones go to the blob store.

A version that changes the schema adds one function to `STEPS`, which converts the messages of its predecessor. The
function never changes once that version has been released. Version 1 is the first, so `STEPS` is empty. A run keeps the
rules that it began with: where the default of a new rule would apply to it, the function switches that rule off.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cadre.delivery.hash_chain import Sealed, completed, encoded, expanded, seal
from cadre.errors import NewerKind, NewerSchema, SpecError, TooLarge, UnreadableMessage
from cadre.journal import unions
from cadre.journal.entry import Entry
from cadre.ports import Blobs
from cadre.protocol.messages import (
    SCHEMA_VERSION,
    CodeCall,
    Head,
    KindMessage,
    Message,
    Record,
    Spilled,
    ToolCall,
)
from cadre.spec.kinds import CLOSING, DEFAULT, declared_kinds, once, version_of

SPILL_BYTES = 256 * 1024
"""A larger message travels as a reference to the object store."""

CONTENT_TYPE = "application/json"

HEADERS = {"Content-Type": CONTENT_TYPE, "Cadre-Schema": str(SCHEMA_VERSION)}
"""On every stored message, for readers that look before they decode. (Schedules lose their headers: the
version is in the body as well.)"""


_encoder = msgspec.json.Encoder()

_packed: dict[Any, Any] = {}
"""The type to which a kind of message is first decoded: the message itself, or its place. Made once, because a union
takes as long to build as a message to decode."""

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

Fields = dict[str, Any]

STEPS: dict[int, Callable[[Fields], Fields]] = {}
"""Functions that convert a message to the next version, by the version that they convert."""


@once
def close() -> None:
    """Close the unions of the journal and build the decoders of all that travels packed. `decode` calls it; a service
    does before it has a second thread, so that no message waits for it. Raises KindError for a kind that cannot be
    loaded."""
    packed = {kind: kind | Spilled for kind in (Entry, unions.close().record, ToolCall, CodeCall)}
    decoders = {kind: msgspec.json.Decoder(kind) for kind in (*packed, *packed.values())}
    _packed.update(packed)
    _decoders.update(decoders)


def _decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type that had none yet."""
    close()
    with CLOSING:
        return _decoders.setdefault(kind, msgspec.json.Decoder(kind))


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


_ENTRIES = (Entry, Entry | Spilled)

_WITH_KIND = (Entry, KindMessage)

_NOT_AS_TOLD = (KeyError, TypeError, AttributeError)


_head_decoder = msgspec.json.Decoder(Head)


_LINE_ENDS = {end.encode(): f"\\u{ord(end):04x}".encode() for end in "\x85\u2028\u2029"}


def on_one_line(frame: bytes) -> bytes:
    """Return a frame of an event stream with the characters escaped that some readers take for the end of a line. In
    valid JSON, they can only be part of a string."""
    for end, escaped in _LINE_ENDS.items():
        frame = frame.replace(end, escaped)
    return frame


def encode(message: Any) -> bytes:
    """Return the bytes of a message or entry, as JSON."""
    return encoded(message) if type(message) is Entry else _encoder.encode(message)


def decode(data: bytes, kind: Any) -> Any:
    """Decode a value of the given message type or union; one of an earlier schema version is upcast.

    Raises NewerSchema, or UnreadableMessage with what is wrong and where.
    """
    decoder = _decoders.get(kind) or _decoder_of(kind)
    if kind in _ENTRIES:
        data = expanded(data)
    try:
        message = decoder.decode(data)
    except (*UNREADABLE, SpecError) as error:
        message = _decode_otherwise(data, kind, error)
    if type(message) is Entry:
        completed(message)
    if isinstance(message, _WITH_KIND) and (newer := _newer_kind(message)) is not None:
        raise newer
    return message


class _Named(msgspec.Struct):
    kind: str = ""


class _Spec(_Named):
    sections: list[_Named] = []


class _WithSpec(msgspec.Struct):
    spec: _Spec | None = None


class _Specs(msgspec.Struct):
    """The specs of an entry, as far as they name kinds."""

    events: list[_WithSpec] = []


_specs_decoder = msgspec.json.Decoder(_Specs)


def _of_missing_kind(data: bytes) -> NewerKind | None:
    """Return the error of an entry whose spec names a kind that is not installed, though the one that decides the run
    is; None if all that it names are."""
    try:
        found = _specs_decoder.decode(data)
    except UNREADABLE:
        return None
    specs = [one.spec for one in found.events if one.spec is not None]
    named = [one.kind for spec in specs for one in (spec, *spec.sections) if one.kind]
    missing = next((kind for kind in named if kind not in declared_kinds()), None)
    return NewerKind(missing, 1, 0) if missing is not None else None


def newer_schema(data: bytes) -> NewerSchema | None:
    """Return why this service is too old to read a message, judged by its version alone; None when it is not."""
    try:
        head = _head_decoder.decode(data)
    except UNREADABLE:
        return None
    return _newer(head)


def _newer(head: Head) -> NewerSchema | None:
    return NewerSchema(head.v, SCHEMA_VERSION) if head.v > SCHEMA_VERSION else _newer_kind(head)


def _newer_kind(head: Head | Entry | KindMessage) -> NewerKind | None:
    """Return why this service cannot go on with what a kind of agent wrote; None when it can."""
    kind = head.kind
    if type(head) is Head and head.type == "entry" and kind is None:
        kind = DEFAULT
    if not kind:
        return None
    known = declared_kinds().get(kind)
    version = version_of(known) if known is not None else 0
    return NewerKind(kind, head.kind_version, version) if head.kind_version > version else None


def _decode_otherwise(data: bytes, kind: Any, error: Exception) -> Any:
    """Return what differs from the present version, or is wrong."""
    try:
        head = _head_decoder.decode(data)
    except UNREADABLE:
        raise UnreadableMessage(f"not a message: {error}") from error
    if (newer := _newer(head) or _of_missing_kind(data)) is not None:
        raise newer from error
    if head.v not in STEPS or not head.type:
        raise UnreadableMessage(f"message of type {head.type or 'unknown'!r}: {error}") from error
    try:
        said = upcast(msgspec.json.decode(data), head.v, SCHEMA_VERSION)
        return unions.converted(said, kind)
    except (*UNREADABLE, *_NOT_AS_TOLD, SpecError) as problem:
        text = f"message of type {head.type!r} and schema version {head.v}: {problem}"
        raise UnreadableMessage(text) from problem


async def pack(message: Message, blobs: Blobs) -> bytes:
    """Encode a message; over SPILL_BYTES it becomes a `spilled` message that names the blob."""
    return await _spill(encode(message), message.id, message, blobs)


async def pack_entry(entry: Entry, before: str, blobs: Blobs) -> Sealed:
    """Encode an entry with its hash, `before` being that of the entry before it; a large one is spilled."""
    sealed = seal(entry, before)
    data = await _spill(sealed.data, f"{entry.run}:entry:{entry.n}", entry, blobs)
    return Sealed(data, sealed.hash)


async def _spill(data: bytes, identity: str, message: Message | Entry, blobs: Blobs) -> bytes:
    if len(data) <= SPILL_BYTES:
        return data
    ref = await blobs.put(data)
    return encode(Spilled(id=identity, tree=message.tree, run=message.run, at=message.at, ref=ref, size=len(data)))


async def unpack(data: bytes, kind: Any, blobs: Blobs) -> Any:
    """Decode what `pack` wrote. Raises UnreadableMessage, TooLarge, BlobMissing."""
    if len(data) > SPILL_BYTES:
        raise TooLarge("a message that did not go to the object store", len(data), SPILL_BYTES)
    close()
    message = decode(data, _packed[kind])
    if isinstance(message, Spilled):
        return decode(await blobs.get(message.ref), kind)
    return message


async def unpack_record(data: bytes, blobs: Blobs) -> Record:
    """Decode a record of an agent's inbox, whole. Raises UnreadableMessage, BlobMissing."""
    record: Record = await unpack(data, unions.close().record, blobs)
    return record


def decode_record(data: bytes) -> Record:
    """Decode a record of an agent's inbox that was not spilled. Raises NewerSchema, UnreadableMessage."""
    record: Record = decode(data, unions.close().record)
    return record


async def unpack_call(data: bytes, blobs: Blobs) -> ToolCall:
    """Decode the call of a tool, whole. Raises UnreadableMessage, BlobMissing."""
    call: ToolCall = await unpack(data, ToolCall, blobs)
    return call


async def unpack_code_call(data: bytes, blobs: Blobs) -> CodeCall:
    """Decode a call for a sandbox, whole. Raises UnreadableMessage, BlobMissing."""
    call: CodeCall = await unpack(data, CodeCall, blobs)
    return call


async def unpack_entry(data: bytes, blobs: Blobs) -> Entry:
    """Decode a journal entry, whole. Raises UnreadableMessage, BlobMissing."""
    entry: Entry = await unpack(data, Entry, blobs)
    return entry


def upcast(message: Fields, version: int, wanted: int) -> Fields:
    """Convert a message of schema `version` to version `wanted`, possibly in place.

    Raises KeyError when a step is missing, and KeyError, TypeError or AttributeError when the message is not of its
    version.
    """
    for step in range(version, wanted):
        message = STEPS[step](message)
        for part in (message, *_inside(message)):
            part["v"] = step + 1
    return message


def _inside(message: Fields) -> Iterator[Fields]:
    """Yield the messages within a message, which have versions of their own."""
    match message["type"]:
        case "entry":
            yield from (event["task"] for event in message["events"] if event["type"] == "run.accepted")
        case "effect_result":
            yield message["claim"]
            yield message["result"]
