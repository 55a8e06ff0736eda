"""What the owner asks of the engine's process and what it answers, as frames over a socket pair."""

import struct
from typing import Any

import msgspec

LENGTH = struct.Struct(">I")
"""Each frame begins with the number of bytes that follow."""

MAX_FRAME_BYTES = 256 * 1024 * 1024

NIL = msgspec.Raw(msgspec.msgpack.encode(None))


class EngineRequest(msgspec.Struct, frozen=True):
    """One operation for the engine: `arguments` is the list that its row in `engine.ARGUMENTS` describes."""

    number: int
    operation: str
    arguments: msgspec.Raw


class EngineReply(msgspec.Struct, frozen=True):
    """The answer to the request of the same number: its value, or why there is none."""

    number: int
    value: msgspec.Raw = NIL
    failure: str = ""
    gone: bool = False
    """Whether the failure is that the collection is not there."""


class Hello(msgspec.Struct, frozen=True):
    """The first frame of the engine's process: it is ready, or says why it cannot be."""

    failure: str = ""


def frame(message: Any) -> bytes:
    """Returns the message as msgpack, with its length before it."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body
