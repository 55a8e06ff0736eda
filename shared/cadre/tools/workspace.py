"""The workspace as tools use it: files by path, shared by all agents of a tree of runs."""

import posixpath
from typing import Protocol

import msgspec

from cadre.errors import TerminalError
from cadre.tools.files import File

MAX_PATH_CHARS = 512


class WorkspaceError(TerminalError):
    """The workspace refuses an operation; the text is for a model or a person."""


class WrongPath(WorkspaceError):
    """The path is not one that a workspace may have."""


class NoSuchFile(WorkspaceError):
    """There is no file with this path."""


class FileChanged(WorkspaceError):
    """The file has another version than the expected one: someone else has written it."""


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a workspace, without its content."""

    path: str
    size: int
    """Bytes."""
    media_type: str
    version: int
    """Counted from 1, one more with each write."""
    at: float
    """The time of the write in Unix seconds."""
    by: str = ""
    """The tool that wrote it, or `gateway`."""
    ref: str = ""
    """`blob:` reference of the content."""


class Workspace(Protocol):
    """The files of a tree, as `ToolContext.workspace`. Paths are relative, with `/`.

    Methods wait for the NATS server as long as it takes.
    """

    async def read(self, path: str) -> File:
        """Read a file. Raises WrongPath, or NoSuchFile, which names the files that there are."""
        ...

    async def write(
        self, path: str, content: bytes | str | File, *, media_type: str = "", expected: int | None = None
    ) -> FileEntry:
        """Write a whole file. When a call runs again with the same id, its earlier writes are not repeated.

        `expected` is the version to replace, 0 for a new file. Raises FileChanged, TooLarge, WrongPath.
        """
        ...

    async def files(self) -> list[FileEntry]:
        """Return all files, sorted by path."""
        ...

    async def delete(self, path: str) -> None:
        """Delete a file. Raises NoSuchFile, WrongPath."""
        ...

    async def blob(self, ref: str) -> bytes:
        """Read the content of a `blob:` reference. Raises BlobMissing."""
        ...


def normal_path(path: str) -> str:
    """The normal form of a path: that of `./a//b.txt` and `/a/b.txt` is `a/b.txt`. Raises WrongPath."""
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
