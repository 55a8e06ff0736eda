"""What is stored of a run's workspace: one record per path, with the versions that it has had."""

from __future__ import annotations

import msgspec

from cadre.messages import Message


class FileWritten(msgspec.Struct, frozen=True):
    """One version that a file has had."""

    version: int
    by: str
    """The write: id of the call, and which of its writes of this path; so none is done twice."""
    ref: str


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
