"""Messages to bytes and back: JSON, its schema version checked, too large ones kept in the blob store."""

from __future__ import annotations

from typing import Any

import msgspec

from cadre.errors import NewerSchema, SpecError, TooLarge, UnreadableMessage
from cadre.loop.events import Entry
from cadre.messages import SCHEMA_VERSION, Message, Record, Spilled, ToolCall
from cadre.ports import Blobs

SPILL_BYTES = 256 * 1024
"""A larger message travels as a reference to the object store."""

CONTENT_TYPE = "application/json"

HEADERS = {"Content-Type": CONTENT_TYPE, "Cadre-Schema": str(SCHEMA_VERSION)}
"""On every stored message, for readers that look before they decode. (Schedules lose their headers: the
version is in the body as well.)"""


_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Head(msgspec.Struct):
    v: int = 0
    type: str = ""


def encode(message: Any) -> bytes:
    return _encoder.encode(message)


def decode(data: bytes, kind: Any) -> Any:
    """Decodes a value of the given message type or union.

    Raises NewerSchema, or UnreadableMessage with what is wrong and where.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(data)
    except (*UNREADABLE, SpecError) as error:
        raise _explain(data, error) from error


def _explain(data: bytes, error: Exception) -> UnreadableMessage:
    try:
        head = msgspec.json.decode(data, type=_Head)
    except UNREADABLE:
        return UnreadableMessage(f"not a message: {error}")
    if head.v > SCHEMA_VERSION:
        return NewerSchema(head.v, SCHEMA_VERSION)
    return UnreadableMessage(f"message of type {head.type or 'unknown'!r}: {error}")


async def pack(message: Message | Entry, blobs: Blobs) -> bytes:
    """Encodes a message; over SPILL_BYTES it becomes a `spilled` message that names the blob."""
    data = encode(message)
    if len(data) <= SPILL_BYTES:
        return data
    identity = message.id if isinstance(message, Message) else f"{message.run}:entry:{message.n}"
    ref = await blobs.put(data)
    return encode(
        Spilled(id=identity, tree=message.tree, run=message.run, at=message.at, ref=ref, size=len(data))
    )


async def unpack(data: bytes, kind: Any, blobs: Blobs) -> Any:
    """Decodes what `pack` wrote. Raises UnreadableMessage, TooLarge, BlobMissing."""
    if len(data) > SPILL_BYTES:
        raise TooLarge("a message that did not go to the object store", len(data), SPILL_BYTES)
    message = decode(data, kind | Spilled)
    if isinstance(message, Spilled):
        return decode(await blobs.get(message.ref), kind)
    return message


async def unpack_record(data: bytes, blobs: Blobs) -> Record:
    record: Record = await unpack(data, Record, blobs)
    return record


async def unpack_call(data: bytes, blobs: Blobs) -> ToolCall:
    call: ToolCall = await unpack(data, ToolCall, blobs)
    return call


async def unpack_entry(data: bytes, blobs: Blobs) -> Entry:
    entry: Entry = await unpack(data, Entry, blobs)
    return entry
