"""Define what passes between the outside and the sandbox.

A frame for a jailed interpreter is a JSON header and bytes, preceded by their sizes. An order for the zygote names one
jail with its tier and limits.
"""

import json
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PREFIX = struct.Struct(">II")
"""Bytes of the header, bytes of all blobs together."""

MACHINES = ("x86_64", "aarch64")
MACHINE = platform.machine()

NO_JAIL = 70
"""Exit code of an interpreter that could not be locked in, or of a program error. Code may forge these, and would gain
nothing."""
NO_TIME = 72
"""Exit code: the limit came while it was tidying up."""
NO_MEMORY = 71
"""Exit code: not enough was left to go on."""

OWN_TASKS = 2
"""Tasks of a jail's namespace that are not the code's: the interpreter and the process that waits for it."""


class BrokenFrame(Exception):
    """The other side does not speak as agreed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A header, and the blobs that it refers to by position."""

    header: dict[str, Any]
    blobs: list[bytes]
    size: int = 0
    """Bytes of the header as it came."""


def encode(header: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """Return the bytes of a frame. Raises TypeError for what is not JSON; NaN and infinities pass, both sides being
    Python."""
    text = json.dumps({**header, "blobs": [len(blob) for blob in blobs]}, ensure_ascii=False)
    # Lone surrogates, which UTF-8 does not have, become question marks.
    data = text.encode(errors="replace")
    return b"".join((PREFIX.pack(len(data), sum(map(len, blobs))), data, *blobs))


def frame_sizes(prefix: bytes, max_header: int, max_blobs: int) -> tuple[int, int]:
    """Return the bytes of the header and of all blobs, as the prefix says. Raises BrokenFrame for more than the
    limits."""
    header, blobs = PREFIX.unpack(prefix)
    if header > max_header or blobs > max_blobs:
        raise BrokenFrame(f"a frame of {header} + {blobs} bytes, allowed are {max_header} + {max_blobs}")
    return header, blobs


def decode(text: bytes, body: bytes) -> Frame:
    """Return the frame whose header and blobs these are. Raises BrokenFrame for what does not parse; the bytes may come
    from the jail."""
    try:
        header = json.loads(text)
        sizes = header.pop("blobs")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BrokenFrame(f"unreadable header: {type(error).__name__}") from None
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise BrokenFrame("sizes of blobs are not sizes")
    if sum(sizes) != len(body):
        raise BrokenFrame("blobs are not as long as said")
    blobs, at = [], 0
    for size in sizes:
        blobs.append(body[at : at + size])
        at += size
    return Frame(header, blobs, len(text))


@dataclass(frozen=True, slots=True)
class JailOrder:
    """One jail to be made."""

    number: int
    """Names the jail in what the zygote says of it."""
    tier: str
    """`ns` or `landlock`."""
    uid: int
    """The user that the code runs as, when the zygote is root."""
    scratch: str
    """The working directory in tier landlock; empty in tier ns, which has its own."""
    memory_bytes: int
    """Address space in all."""
    file_mb: int
    threads: int
