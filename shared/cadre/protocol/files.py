"""Files within JSON values, and records of a workspace: one per path, with the versions of the file."""

import base64
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from cadre.protocol.messages import Message

CARRIED = "carried"
"""Stands in `FileWritten.by` for a version taken over from another tree's workspace; no call has this id."""

UNKNOWN_POSITION = -1
"""The `seq` of a version from an exported run, whose place among the journals is unknown."""


def dicts_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every dict within a JSON value, an outer one before those in it, in the order of the value."""
    if isinstance(value, list):
        for item in value:
            yield from dicts_in(item)
    elif isinstance(value, dict):
        yield value
        for item in value.values():
            yield from dicts_in(item)


def holds_binary(value: Any) -> bool:
    """Return whether something stands in the JSON that JSON does not have: an image, a table, bytes, a file."""
    return any(one.keys() in ({"$given"}, {"$file"}) for one in dicts_in(value))


class FileWritten(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a file. The fields after `ref` are filled in when a later version replaces it."""

    version: int
    by: str
    """The id of the write, made of the call's id and a count, by which a repeated write is recognised."""
    ref: str
    """`blob:` reference of the content; empty if the file was deleted."""
    seq: int = 0
    """Its sequence in the stream that holds the journals of its tree too; 0 when unknown."""
    media_type: str = ""
    size: int = 0
    at: float = 0.0
    tool: str = ""
    """The writer, as in `WorkspaceFile.by`."""


class WorkspaceFile(Message, frozen=True, kw_only=True, tag="workspace_file"):
    """The present state of one path of a workspace. Its id is `<tree>:file:<path>:<version>`."""

    path: str
    version: int
    """Counted from 1, deletions included."""
    ref: str | None = None
    """`blob:` reference of the content; None if the file is deleted."""
    media_type: str = "application/octet-stream"
    size: int = 0
    by: str = ""
    """The writer: a tool, an agent or the gateway."""
    history: list[FileWritten] = msgspec.field(default_factory=list)
    """The versions up to this one, oldest first; of many only the latest."""


class PastFile(NamedTuple):
    """The content of a path at some point."""

    file: WorkspaceFile | None
    """None if there was no file."""
    is_certain: bool
    """False if the version of that time is lost or unknown, and `file` is the present one instead."""


def history_before_next(record: WorkspaceFile, seq: int) -> list[FileWritten]:
    """The `history` for the record that replaces this one, which lies at `seq`."""
    if not record.history:
        return []
    *earlier, last = record.history
    told = msgspec.structs.replace(
        last,
        seq=last.seq or seq,
        media_type=record.media_type,
        size=record.size,
        at=record.at,
        tool=record.by,
    )
    return [*earlier, told]


def as_of(record: WorkspaceFile, seq: int, point: int | None) -> PastFile:
    """The content of the record's path before sequence `point`; the latest if `point` is None. The record lies at
    `seq`."""
    present = record if record.ref is not None else None
    if point is None:
        return PastFile(present, True)
    if any(one.seq == UNKNOWN_POSITION for one in record.history[-1:]):
        return PastFile(present, False)
    if seq < point:
        return PastFile(present, True)
    for written in reversed(record.history[:-1]):
        if written.seq <= 0:
            return PastFile(present, False)
        if written.seq < point:
            return PastFile(_restored(record, written) if written.ref else None, True)
    if len(record.history) == record.version:
        return PastFile(None, True)
    return PastFile(present, False)


def carried_over(record: WorkspaceFile, tree: str) -> WorkspaceFile:
    """The record of the same version in the workspace of another tree."""
    return msgspec.structs.replace(
        record,
        id=f"{tree}:file:{record.path}:{record.version}",
        tree=tree,
        run=tree,
        history=[FileWritten(record.version, CARRIED, record.ref or "")],
    )


def is_carried(record: WorkspaceFile) -> bool:
    """Return whether the file was taken over from another tree and not written since."""
    return any(one.by == CARRIED for one in record.history[-1:])


def _restored(record: WorkspaceFile, written: FileWritten) -> WorkspaceFile:
    return msgspec.structs.replace(
        record,
        at=written.at,
        version=written.version,
        ref=written.ref,
        media_type=written.media_type,
        size=written.size,
        by=written.tool,
    )


# --- contents in requests and values

_BLOB_REF = re.compile(r"blob:[0-9a-f]{64}")
_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?:;[\w-]+=[^;,]*)*;base64,", re.ASCII)


class DataUrl(NamedTuple):
    """The content of a `data:` URL."""

    media_type: str
    """Empty when the URL names none."""
    data: bytes


def is_blob_ref(text: str) -> bool:
    """Return whether a text is `blob:` and the SHA-256 of a content."""
    return _BLOB_REF.fullmatch(text) is not None


def decode_data_url(url: str) -> DataUrl | None:
    """The content of a base64 `data:` URL; None for any other text. Raises ValueError for what is not base64."""
    head = _DATA_URL.match(url)
    if head is None:
        return None
    return DataUrl(head["type"] or "", base64.b64decode(url[head.end() :], validate=True))
