"""Serve the console: its page at `/`, its modules and style sheets below `/console/`."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Header
from fastapi.responses import Response

from cadre_gateway.requests.problems import Problem

_PAGE = "index.html"

_HEADERS = {
    # Nothing but the gateway's own files and answers; no other page may frame it and have people click in it.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked for anew each time, and not sent where the browser has it: after an update no two versions are mixed.
    "Cache-Control": "no-cache",
}

_MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def console_router() -> APIRouter:
    """The routes of the console."""
    routes = APIRouter(include_in_schema=False)
    assets = load_assets()

    @routes.get("/")
    async def get_page(if_none_match: Annotated[str, Header()] = "") -> Response:
        return answer(_PAGE, if_none_match)

    @routes.get("/console/{path:path}")
    async def get_asset(path: str, if_none_match: Annotated[str, Header()] = "") -> Response:
        return answer(path, if_none_match)

    def answer(path: str, if_none_match: str) -> Response:
        asset = assets.get(path)
        if asset is None:
            raise Problem(404, "not-found", f"the console has no file {path!r}: its page is at /")
        headers = {**_HEADERS, "ETag": asset.etag}
        if asset.etag in (tag.strip().removeprefix("W/") for tag in if_none_match.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(asset.data, headers=headers, media_type=asset.media_type)

    return routes


class Asset(NamedTuple):
    """One file of the console."""

    data: bytes
    media_type: str
    etag: str
    """Quoted, as the header has it: a digest of the file."""


def load_assets() -> dict[str, Asset]:
    """All files of the console by their path below `web`."""
    return dict(_assets(files("cadre_gateway.console") / "web", ""))


def _assets(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            found += _assets(entry, path + "/")
        elif (media_type := _MEDIA_TYPES.get(entry.name.rpartition(".")[2])) is not None:
            data = entry.read_bytes()
            found.append((path, Asset(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')))
    return found
