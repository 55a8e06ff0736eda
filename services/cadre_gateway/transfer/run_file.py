"""The file that a run is exported to: gzip, one JSON object per line.

The first line is a Header. Blobs stand before the first entry that names them, in parts; entries stand as
their journals hold them, in the order of their stream. The files of the run's workspace come before the entries:
an import that was cut short is recognized by missing entries. The last line says how many there were.
"""

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cadre.protocol.files import WorkspaceFile

FORMAT = "cadre-run"
VERSION = 1

PART_BYTES = 192 * 1024
"""The bytes of a blob in one line, before base64."""

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_UNPACKED_BYTES = 16 * 1024 * 1024 * 1024
"""The size of all lines together."""

MAX_BLOB_BYTES = 64 * 1024 * 1024
"""The size of a blob, unless CADRE_FILE_BYTES allows larger files."""

_FREELY_UNPACKED_BYTES = 256 * 1024 * 1024
_MAX_RATIO = 100
"""Beyond the first bytes, lines may be so many times as large as what was read of the file to unpack them."""

_MAX_VALUES = 4_000_000
"""Brackets and commas in one line: each may become an object in memory."""

_STRUCTURE = (b"[", b"{", b",")

_TREE_ID = re.compile(r"[A-Za-z0-9-]{1,256}")


class BadRunFile(Exception):
    """Not a file that can be imported; its text says why, in one line."""


class Header(msgspec.Struct, kw_only=True):
    """The first line: what the file holds."""

    format: str
    v: int
    tree: str
    exported_at: float
    cadre: str
    """Version of Cadre that wrote the file."""
    runs: int
    entries: int


class BlobPart(msgspec.Struct, kw_only=True, tag_field="line", tag="blob"):
    """A part of a blob."""

    ref: str
    part: int
    """Counted from 0."""
    last: bool
    data: bytes
    """base64 in JSON."""


class MissingBlob(msgspec.Struct, tag_field="line", tag="missing"):
    """A blob that an entry names and that was not there any more."""

    ref: str


class EntryLine(msgspec.Struct, tag_field="line", tag="entry"):
    """A journal entry as it was written."""

    seq: int
    """The old sequence of the entry, by which the `prev` of later entries names it."""
    entry: msgspec.Raw


class FileLine(msgspec.Struct, tag_field="line", tag="file"):
    """A path of the run's workspace, as its index has it."""

    file: WorkspaceFile


class EndLine(msgspec.Struct, tag_field="line", tag="end", omit_defaults=True):
    """The last line: how many entries, blobs and files stand before it."""

    entries: int
    blobs: int
    files: int = 0


Line = BlobPart | MissingBlob | EntryLine | FileLine | EndLine


def encode_line(value: Header | Line) -> bytes:
    """The line with its newline."""
    return msgspec.json.encode(value) + b"\n"


def parts(ref: str, data: bytes) -> Iterator[BlobPart]:
    """The lines of a blob; an empty one has a part, too."""
    starts = range(0, max(len(data), 1), PART_BYTES)
    for number, start in enumerate(starts):
        piece = data[start : start + PART_BYTES]
        yield BlobPart(ref=ref, part=number, last=start == starts[-1], data=piece)


def content_bytes(line: Header | Line) -> int:
    """How much of a blob or of a journal the line holds."""
    match line:
        case BlobPart(data=data):
            return len(data)
        case EntryLine(entry=entry):
            return len(bytes(entry))
        case _:
            return 0


def read(file: Path) -> Iterator[tuple[int, Header | Line]]:
    """The lines of a file with their numbers, each for itself well-formed. Raises BadRunFile."""
    number, size = 0, 0
    try:
        with file.open("rb") as packed, gzip.GzipFile(fileobj=packed) as stream:
            while text := stream.readline(MAX_LINE_BYTES + 1):
                number, size = number + 1, size + len(text)
                if len(text) > MAX_LINE_BYTES or size > MAX_UNPACKED_BYTES:
                    raise BadRunFile(f"line {number} is longer than any line of an exported run")
                if size > _FREELY_UNPACKED_BYTES + _MAX_RATIO * packed.tell():
                    raise BadRunFile(f"line {number} unpacks to more than {_MAX_RATIO} times its size")
                if sum(map(text.count, _STRUCTURE)) > _MAX_VALUES:
                    raise BadRunFile(f"line {number} has more values than any line of an exported run")
                yield number, _header(text) if number == 1 else _line(number, text)
    except gzip.BadGzipFile as error:
        raise BadRunFile(
            "it is no exported run: those are gzip files that `cadre runs export` writes"
        ) from error
    except EOFError as error:
        raise BadRunFile(f"it ends in the middle of line {number + 1}: copy it again") from error
    except zlib.error as error:
        raise BadRunFile(f"it is damaged behind line {number} ({error}): copy it again") from error
    if number == 0:
        raise BadRunFile("it is empty")


def content_digest(entry: bytes) -> bytes:
    """A hash of what an entry says, the same wherever the entry and its predecessors lie."""
    fields = msgspec.json.decode(entry, type=dict[str, Any])
    fields.pop("prev", None)
    return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).digest()


def _header(text: bytes) -> Header:
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
        if fields.get("format") != FORMAT:
            raise BadRunFile("it is no exported run: its first line does not say so")
        version = fields.get("v")
        if isinstance(version, int) and version > VERSION:
            raise BadRunFile(
                f"it is of version {version}, newer than version {VERSION}, the newest that this gateway reads:"
                " upgrade the gateway"
            )
        header = msgspec.convert(fields, Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRunFile(
            f"it is no exported run: its first line is not what it should be ({error})"
        ) from error
    if not _TREE_ID.fullmatch(header.tree):
        raise BadRunFile(f"{header.tree!r} is not the id of a run")
    return header


def _line(number: int, text: bytes) -> Line:
    try:
        found: Line = msgspec.json.decode(text, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRunFile(f"line {number} is not what it should be ({error})") from error
    return found
