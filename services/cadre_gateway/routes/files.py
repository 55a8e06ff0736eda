"""The HTTP routes for files: those of a run's workspace, and blobs by their content."""

import re
import secrets
from typing import Annotated
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response

from cadre.delivery.workspace_store import WorkspaceStore
from cadre.protocol.topology import tree_of
from cadre.tools.files import media_type_of
from cadre.tools.workspace import FileEntry
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests import body
from cadre_gateway.requests.body import MEDIA_TYPE, download
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import json_answer
from cadre_gateway.starting.workspaces import Workspaces, workspace_problems

_DOWNLOAD = openapi.streams("The bytes, as a download", "application/octet-stream")
_UPLOAD = openapi.operation("application/octet-stream", {"200": ("Written", FileEntry)})

_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNSAID = "application/x-www-form-urlencoded"
"""The content type that curl sends by default: it does not describe the file, whose name does."""


def router(lookup: RunLookup, workspaces: Workspaces) -> APIRouter:
    """Return the routes of files."""
    routes = APIRouter(prefix="/v1", tags=["files"], dependencies=[Depends(_readable_path)])

    async def workspace_of(run: str, *, for_writing: bool = False) -> WorkspaceStore:
        """Raise a 404 problem, and a 409 problem if the tree's root has ended and no run would read the file."""
        await lookup.find(run)
        tree = tree_of(run)
        if for_writing and (root := await lookup.find(tree)).finished:
            raise Problem(409, "run-ended", f"run {tree} has ended as {root.state}: its files stay as they are")
        return workspaces.open(tree, secrets.token_hex(8))

    @routes.get("/blobs/{sha256}", summary="The bytes of a file or image", responses=_DOWNLOAD)
    async def get_blob(sha256: str, name: str = "", type: str = "") -> Response:
        """The content that `blob:<sha256>` stands for, always as a download. `name` and `type` are what a value
        `{"$file": …}` says of it."""
        if not _SHA256.fullmatch(sha256):
            raise Problem(404, "unknown-blob", f"{sha256!r} is no blob: its name has 64 hexadecimal digits")
        if type and not MEDIA_TYPE.fullmatch(type):
            raise invalid(f"query.type: {type!r} is no media type: write one like image/png")
        async with answer_deadline():
            data = await workspaces.blobs.get(f"blob:{sha256}")
        return download(data, name or sha256, type or media_type_of(data, name))

    @routes.get("/runs/{run}/files", summary="Files of a run's workspace", responses=openapi.answers(openapi.FileList))
    async def get_files(run: str) -> Response:
        """Lists the workspace of the whole tree that the run belongs to: its agents share it."""
        async with answer_deadline():
            files = await (await workspace_of(run)).files()
        return json_answer(openapi.FileList(files))

    @routes.get("/runs/{run}/files/{path:path}", summary="One file of a run's workspace", responses=_DOWNLOAD)
    async def get_file(run: str, path: str) -> Response:
        with workspace_problems():
            async with answer_deadline():
                file = await (await workspace_of(run)).read(path)
        return download(file.data, file.name, file.media_type)

    @routes.put("/runs/{run}/files/{path:path}", summary="Give a run a file", openapi_extra=_UPLOAD)
    async def put_file(
        run: str,
        path: str,
        request: Request,
        expected: Annotated[int | None, Query(ge=0)] = None,
        content_type: Annotated[str, Header()] = "",
    ) -> Response:
        """The body is the file. `expected` is the version that is to be replaced, 0: none; else 409."""
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type == _UNSAID:
            media_type = ""
        data = await body.read(request, workspaces.max_file_bytes)
        with workspace_problems():
            async with answer_deadline():
                workspace = await workspace_of(run, for_writing=True)
                entry = await workspace.write(
                    path,
                    data,
                    media_type=media_type if MEDIA_TYPE.fullmatch(media_type) else "",
                    expected=expected,
                )
        return json_answer(entry)

    @routes.delete("/runs/{run}/files/{path:path}", summary="Take a file from a run's workspace", status_code=204)
    async def delete_file(run: str, path: str) -> Response:
        with workspace_problems():
            async with answer_deadline():
                await (await workspace_of(run, for_writing=True)).delete(path)
        return Response(status_code=204)

    return routes


async def _readable_path(request: Request) -> None:
    """Raise a 422 problem for a path that is not UTF-8: as it is read, it might be that of another file."""
    raw: bytes = request.scope.get("raw_path", b"")
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        text = raw.decode("latin-1")
        raise invalid(f"path {text!r} is not UTF-8: write it as UTF-8 and percent-encode its bytes") from error
