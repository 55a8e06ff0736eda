"""The tools `read_file`, `write_file`, `list_files`, `delete_file` and `read_output`: what a run keeps and hands on."""

from typing import Annotated, Any

import msgspec

from cadre.tool import ToolContext, tool
from cadre.tools.files import File, media_type_of

MAX_CHARACTERS = 15_000
"""Number of characters of a text that one call shows: more would be cut by most agents' own limit."""

Start = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_CHARACTERS)]


class ListedFile(msgspec.Struct, frozen=True):
    """A file of the workspace."""

    path: str
    size: int
    """Bytes."""
    media_type: str
    version: int


class Written(msgspec.Struct, frozen=True):
    """What was written."""

    path: str
    size: int
    version: int
    """One more with each write of this path."""


@tool(read_only=True, timeout=60)
async def list_files(context: ToolContext) -> list[ListedFile]:
    """Lists the files of the workspace, which you share with everybody who works on this task.

    Returns:
        Each file's path, size, type and version.
    """
    return [ListedFile(one.path, one.size, one.media_type, one.version) for one in await context.workspace.files()]


@tool(read_only=True, timeout=60)
async def read_file(path: str, context: ToolContext, offset: Start = 0, limit: Count = MAX_CHARACTERS) -> str | File:
    """Reads a file of the workspace. A text comes as it is, an image or other binary file as a file value.

    Args:
        path: As `list_files` names it.
        offset: Characters to leave out at the beginning of a text.
        limit: Characters to read at most.

    Returns:
        The text, with a note when more follows; or the value {"$file": …}, which tools that take a file accept.
    """
    file = await context.workspace.read(path)
    text = _text(file.data)
    return file if text is None else part(text, offset, limit)


@tool(idempotent=True, timeout=60)
async def write_file(
    path: str,
    content: str | dict[str, Any],
    context: ToolContext,
    expected_version: Start | None = None,
) -> Written:
    """Writes a file of the workspace whole, in the place of what was there. People can download it.

    Args:
        path: Like report.md or data/table.csv; folders need not be made.
        content: The text; or the value {"$file": …} of an earlier result, which is kept as it is.
        expected_version: Write only over this version (0: only a new file); leave it out to write over any.

    Returns:
        The path, the size in bytes and the new version.
    """
    kept: str | File = content if isinstance(content, str) else File.from_json(content)
    if isinstance(kept, File):
        await context.fetch(kept)
    entry = await context.workspace.write(path, kept, expected=expected_version)
    return Written(entry.path, entry.size, entry.version)


@tool(idempotent=True, timeout=60)
async def delete_file(path: str, context: ToolContext) -> str:
    """Deletes a file of the workspace.

    Args:
        path: As `list_files` names it.
    """
    await context.workspace.delete(path)
    return f"{path} is deleted."


@tool(read_only=True, timeout=60)
async def read_output(ref: str, context: ToolContext, start: Start = 0, chars: Count = MAX_CHARACTERS) -> str | File:
    """Reads a piece of a tool's output that was too long to be shown whole.

    Args:
        ref: The reference blob:… that the note in the cut output names.
        start: Characters to leave out at the beginning.
        chars: Characters to read at most.

    Returns:
        The piece, with a note when more follows.
    """
    data = await context.workspace.blob(ref)
    text = _text(data)
    return File(data) if text is None else part(text, start, chars)


def part(text: str, start: int, count: int) -> str:
    """Return a piece of a text with a note on what follows it."""
    if not text:
        return "[It is empty.]"
    if start >= len(text):
        return f"[There is nothing at {start}: it has {len(text)} characters.]"
    end = min(start + count, len(text))
    more = f"\n[{len(text) - end} of {len(text)} characters follow: read on at {end}.]" if end < len(text) else ""
    return text[start:end] + more


def _text(data: bytes) -> str | None:
    """Return the data as text; None if it is not text."""
    if b"\0" in data or media_type_of(data) != media_type_of(b""):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
