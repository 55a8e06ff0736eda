"""The HTTP routes for files: those of a run's workspace, and blobs by their content."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote, unquote_to_bytes

import msgspec
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from cadre.delivery.workspace_store import TreeFiles
from cadre.protocol.topology import tree_of
from cadre.tools.files import UNKNOWN, media_type_of
from cadre.tools.workspace import FileEntry
from cadre_gateway.desk import ANSWER_WITHIN, Desk
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import Problem, invalid
from cadre_gateway.routes import openapi
from cadre_gateway.runs.lookup import find
from cadre_gateway.runs.workspaces import files_of, telling_why

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,127}")
_PIECE = 256 * 1024
_LONGEST_NAME = 200


def router(desk: Desk) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["files"], dependencies=[Depends(_readable_path)])

    @routes.get("/blobs/{sha256}", summary="The bytes of a file or image", responses=openapi.download())
    async def get_blob(sha256: str, name: str = "", type: str = "") -> Response:
        """What `blob:<sha256>` stands for, always as a download. `name` and `type` are what a value
        `{"$file": …}` says of it."""
        if not _SHA256.fullmatch(sha256):
            raise Problem(404, "unknown-blob", f"{sha256!r} is no blob: its name has 64 hexadecimal digits")
        if type and not _MEDIA_TYPE.fullmatch(type):
            raise invalid(f"query.type: {type!r} is no media type: write one like image/png")
        async with asyncio.timeout(ANSWER_WITHIN):
            data = await desk.platform.blobs.get(f"blob:{sha256}")
        return _download(data, name or sha256, type or media_type_of(data, name))

    @routes.get(
        "/runs/{run}/files", summary="Files of a run's workspace", responses=openapi.answers(openapi.FileList)
    )
    async def get_files(run: str) -> Response:
        """Of the whole tree that the run belongs to: its agents share one workspace."""
        async with asyncio.timeout(ANSWER_WITHIN):
            files = await (await _workspace(desk, run)).files()
        return _json(openapi.FileList(files))

    @routes.get(
        "/runs/{run}/files/{path:path}", summary="One file of a run's workspace", responses=openapi.download()
    )
    async def get_file(run: str, path: str) -> Response:
        with telling_why():
            async with asyncio.timeout(ANSWER_WITHIN):
                file = await (await _workspace(desk, run)).read(path)
        return _download(file.data, file.name, file.media_type)

    @routes.put(
        "/runs/{run}/files/{path:path}", summary="Give a run a file", openapi_extra=openapi.upload(FileEntry)
    )
    async def put_file(
        run: str,
        path: str,
        request: Request,
        expected: Annotated[int | None, Query(ge=0)] = None,
        content_type: Annotated[str, Header()] = "",
    ) -> Response:
        """The body is the file. `expected` is the version that is to be replaced, 0: none; else 409."""
        told = content_type.partition(";")[0].strip().lower()
        data = await body.read(request, desk.platform.settings.file_bytes)
        with telling_why():
            async with asyncio.timeout(ANSWER_WITHIN):
                workspace = await _workspace(desk, run, for_writing=True)
                entry = await workspace.write(
                    path, data, media_type=told if _MEDIA_TYPE.fullmatch(told) else "", expected=expected
                )
        return _json(entry)

    @routes.delete("/runs/{run}/files/{path:path}", summary="Take a file from a run's workspace")
    async def delete_file(run: str, path: str) -> Response:
        with telling_why():
            async with asyncio.timeout(ANSWER_WITHIN):
                await (await _workspace(desk, run, for_writing=True)).delete(path)
        return Response(status_code=204)

    return routes


async def _readable_path(request: Request) -> None:
    """Raises a 422 problem for a path that is not UTF-8: as it is read, it might be that of another file."""
    raw: bytes = request.scope.get("raw_path", b"")
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        told = raw.decode("latin-1")
        raise invalid(
            f"path {told!r} is not UTF-8: write it as UTF-8 and percent-encode its bytes"
        ) from error


async def _workspace(desk: Desk, run: str, *, for_writing: bool = False) -> TreeFiles:
    """Raises a 404 problem, and a 409 problem where the tree's root has ended and nobody would read the file."""
    await find(desk, run)
    tree = tree_of(run)
    if for_writing and (root := await find(desk, tree)).finished:
        raise Problem(409, "run-ended", f"run {tree} has ended as {root.state}: its files stay as they are")
    return files_of(desk, tree, secrets.token_hex(8))


def _download(data: bytes, name: str, media_type: str) -> Response:
    """Never shown by a browser as a page of this gateway."""
    plain = "".join(c for c in name if c.isprintable() and c not in '/\\"')[:_LONGEST_NAME] or "file"
    ascii_name = plain.encode("ascii", "replace").decode().replace("?", "_").replace("%", "_")
    headers = {
        "Content-Disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(plain, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Length": str(len(data)),
    }
    kind = media_type if _MEDIA_TYPE.fullmatch(media_type) else UNKNOWN
    return StreamingResponse(_pieces(data), headers=headers, media_type=kind)


def _pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
