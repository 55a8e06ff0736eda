"""Workspaces as requests use them: bound to one request, what they refuse told as a problem."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cadre.delivery.workspace_store import TreeFiles
from cadre.tools.files import File
from cadre.tools.workspace import FileChanged, NoSuchFile, WorkspaceError
from cadre_gateway.desk import Desk
from cadre_gateway.requests.problems import Problem, invalid

WRITER = "gateway"

_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?:;[\w-]+=[^;,]*)*;base64,", re.ASCII)
_BLOB = re.compile(r"blob:[0-9a-f]{64}")


def files_of(desk: Desk, tree: str, request: str) -> TreeFiles:
    """The workspace of a tree. `request` is what makes a write the same one when the request comes again."""
    most, blobs = desk.platform.settings.file_bytes, desk.platform.blobs
    return TreeFiles(desk.files, blobs, tree=tree, call=request, by=WRITER, most_bytes=most)


async def put_files(desk: Desk, tree: str, wanted: Mapping[str, str]) -> None:
    """Puts the files of a run that is about to begin where its agents will find them. Raises a 422 problem."""
    workspace = files_of(desk, tree, "task")
    with telling_why():
        for path, ref in wanted.items():
            data, media_type = await _content(workspace, path, ref)
            await workspace.write(path, File(data, name=path, media_type=media_type))


async def _content(workspace: TreeFiles, path: str, ref: str) -> tuple[bytes, str]:
    if _BLOB.fullmatch(ref):
        return await workspace.blob(ref), ""
    head = _DATA_URL.match(ref)
    if head is None:
        raise invalid(f"files.{path}: send a `data:…;base64,…` URL or a `blob:<sha256>`")
    try:
        return base64.b64decode(ref[head.end() :], validate=True), head["type"] or ""
    except binascii.Error as error:
        raise invalid(f"files.{path}: not base64: {error}") from error


@contextmanager
def telling_why() -> Iterator[None]:
    """Turns what a workspace refuses into a problem."""
    try:
        yield
    except NoSuchFile as error:
        raise Problem(404, "unknown-file", str(error)) from error
    except FileChanged as error:
        raise Problem(409, "file-changed", str(error)) from error
    except WorkspaceError as error:
        raise invalid(str(error)) from error
