"""What the owner asks of the engine's process and what it answers, as frames over a socket pair."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from cadre_memory.index.filters import Selection
from cadre_memory.index.store import Point, Query

LENGTH = struct.Struct(">I")
"""Before each frame: its bytes."""

MOST_BYTES = 256 * 1024 * 1024

NIL = msgspec.Raw(msgspec.msgpack.encode(None))


class Request(msgspec.Struct, frozen=True, tag=True, tag_field="do"):
    pass


class Collections(Request, frozen=True, tag="collections"):
    """Answered with list[str]."""


class Create(Request, frozen=True, tag="create"):
    collection: str


class Drop(Request, frozen=True, tag="drop"):
    collection: str


class Aliases(Request, frozen=True, tag="aliases"):
    """Answered with dict[str, str]."""


class PointAliases(Request, frozen=True, tag="point"):
    aliases: dict[str, str | None]


class Upsert(Request, frozen=True, tag="upsert"):
    collection: str
    points: list[Point]
    only_new: bool = False


class SetDense(Request, frozen=True, tag="set_dense"):
    collection: str
    vectors: dict[str, list[list[float]]]


class Search(Request, frozen=True, tag="search"):
    """Answered with list[Found]."""

    collection: str
    query: Query
    selection: Selection


class Scroll(Request, frozen=True, tag="scroll"):
    """Answered with Records."""

    collection: str
    selection: Selection
    limit: int
    after: str | None = None
    fields: list[str] | None = None


class Count(Request, frozen=True, tag="count"):
    """Answered with int."""

    collection: str
    selection: Selection


class Delete(Request, frozen=True, tag="delete"):
    """Answered with int."""

    collection: str
    selection: Selection


class Flush(Request, frozen=True, tag="flush"):
    """To the disk, now."""


class Vacuum(Request, frozen=True, tag="vacuum"):
    """What the engine's process otherwise does by itself when idle."""


class Close(Request, frozen=True, tag="close"):
    """Flush and end."""


AnyRequest = (
    Collections
    | Create
    | Drop
    | Aliases
    | PointAliases
    | Upsert
    | SetDense
    | Search
    | Scroll
    | Count
    | Delete
    | Flush
    | Vacuum
    | Close
)


class Asked(msgspec.Struct, frozen=True):
    number: int
    request: AnyRequest


class Answer(msgspec.Struct, frozen=True):
    number: int
    value: msgspec.Raw = NIL
    failure: str = ""
    gone: bool = False
    """The failure is that the collection is not there."""


class Hello(msgspec.Struct, frozen=True):
    """The first frame of the engine's process: it is ready, or says why it cannot be."""

    failure: str = ""


def frame(message: Any) -> bytes:
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body
