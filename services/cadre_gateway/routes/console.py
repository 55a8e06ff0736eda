"""The HTTP routes of the console: its page at `/`, its modules and style sheets below `/console/`."""

from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import Response

from cadre_gateway.console.assets import load_assets
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


def router() -> APIRouter:
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
