"""The workspace of a tree of runs as its tools use it: files by path, shared by all agents of the tree."""

from __future__ import annotations

import posixpath
from typing import Protocol

import msgspec

from cadre.errors import TerminalError
from cadre.tools.files import File

MAX_PATH_CHARS = 512


class WorkspaceError(TerminalError):
    """What a workspace refuses; a model or a person reads the text."""


class WrongPath(WorkspaceError):
    pass


class NoSuchFile(WorkspaceError):
    pass


class FileChanged(WorkspaceError):
    """Somebody else wrote the file since the version that was expected."""


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a workspace, without its content."""

    path: str
    size: int
    """Bytes."""
    media_type: str
    version: int
    """From 1, one more with each write."""
    at: float
    """When it was written, in Unix seconds."""
    by: str = ""
    """The tool that wrote it, or `gateway`."""
    ref: str = ""
    """`blob:` reference of its content."""


class Workspace(Protocol):
    """`ToolContext.workspace`. Paths are relative, with `/`; what waits for a server waits as long as it takes."""

    async def read(self, path: str) -> File:
        """Raises NoSuchFile, which names the files that there are; WrongPath."""
        ...

    async def write(
        self, path: str, content: bytes | str | File, *, media_type: str = "", expected: int | None = None
    ) -> FileEntry:
        """Writes a file whole. Run again with the same call id, a write that took place is not repeated.

        `expected` is the version that is to be replaced, 0: none. Raises FileChanged, TooLarge, WrongPath.
        """
        ...

    async def files(self) -> list[FileEntry]:
        """All files, by path."""
        ...

    async def delete(self, path: str) -> None:
        """Raises NoSuchFile, WrongPath."""
        ...

    async def blob(self, ref: str) -> bytes:
        """What a `blob:` reference stands for. Raises BlobMissing."""
        ...


def normal_path(path: str) -> str:
    """The one way to write a path: `./a//b.txt` and `/a/b.txt` are `a/b.txt`. Raises WrongPath."""
    if not path.isprintable() or "\\" in path:
        raise WrongPath(f"path {path!r}: write printable characters, with / between folders")
    if ".." in path.split("/"):
        raise WrongPath(f"path {path!r} leads out of the workspace: write it without ..")
    normal = posixpath.normpath("/" + path).lstrip("/")
    if not normal:
        raise WrongPath(f"path {path!r} names no file: write one like report.md or data/table.csv")
    if len(normal) > MAX_PATH_CHARS:
        raise WrongPath(f"a path has at most {MAX_PATH_CHARS} characters, this one {len(normal)}")
    return normal
