"""Files within values, and files of a run's workspace: one record per path, with the versions that it has had."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from cadre.protocol.messages import Message

CARRIED = "carried"
"""The write of a version that another tree's workspace had: no call is named so."""

ELSEWHERE = -1
"""The place of a version that came with an exported run: nobody knows what it lay before and behind."""


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
    """Whether something stands in the JSON that JSON does not have: an image, a table, bytes, a file."""
    return any(one.keys() in ({"$given"}, {"$file"}) for one in dicts_in(value))


class FileWritten(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version that a file has had. What follows `ref` is told of those that another has followed."""

    version: int
    by: str
    """The write: id of the call, and which of its writes of this path; so none is done twice."""
    ref: str
    """Empty: the file was deleted."""
    seq: int = 0
    """Where it lay in the stream, which holds the journals of its tree too; 0: not known."""
    media_type: str = ""
    size: int = 0
    at: float = 0.0
    tool: str = ""
    """Who wrote it, as `WorkspaceFile.by` says."""


class WorkspaceFile(Message, frozen=True, kw_only=True, tag="workspace_file"):
    """A path of a tree's workspace, as it is now. Its id is `<tree>:file:<path>:<version>`."""

    path: str
    version: int
    """From 1; it goes on counting when the file was deleted."""
    ref: str | None = None
    """`blob:` reference of the content; None: deleted."""
    media_type: str = "application/octet-stream"
    size: int = 0
    by: str = ""
    """Who wrote it: a tool, an agent or the gateway."""
    history: list[FileWritten] = msgspec.field(default_factory=list)
    """The versions up to this one, oldest first; only the latest of many."""


class PastFile(NamedTuple):
    """What a path held at some point."""

    file: WorkspaceFile | None
    """None: nothing."""
    is_certain: bool
    """False: the version of then is not kept, or cannot be told, and this is the present one."""


def history_before_next(record: WorkspaceFile, seq: int) -> list[FileWritten]:
    """The versions of a record that lies at `seq`, for the one that takes its place."""
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
    """What the path of a record that lies at `seq` held before `point` of its stream; None: now."""
    present = record if record.ref is not None else None
    if point is None:
        return PastFile(present, True)
    if any(one.seq == ELSEWHERE for one in record.history[-1:]):
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


def carried(record: WorkspaceFile, tree: str) -> WorkspaceFile:
    """The same version of the file in the workspace of another tree, whose writers are others."""
    return msgspec.structs.replace(
        record,
        id=f"{tree}:file:{record.path}:{record.version}",
        tree=tree,
        run=tree,
        history=[FileWritten(record.version, CARRIED, record.ref or "")],
    )


def is_carried(record: WorkspaceFile) -> bool:
    """Whether nobody has written the file since it was carried to its tree."""
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
    """What a `data:` URL holds."""

    media_type: str
    """Empty when the URL names none."""
    data: bytes


def is_blob_ref(text: str) -> bool:
    """Whether a text is `blob:` and the SHA-256 of a content."""
    return _BLOB_REF.fullmatch(text) is not None


def decode_data_url(url: str) -> DataUrl | None:
    """The content of a base64 `data:` URL; None for any other text. Raises ValueError for what is not base64."""
    head = _DATA_URL.match(url)
    if head is None:
        return None
    return DataUrl(head["type"] or "", base64.b64decode(url[head.end() :], validate=True))
