"""Build the HTTP application: its routes, its checks of every request, its description at /openapi.json."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Annotated, NamedTuple

from fastapi import APIRouter, Depends, FastAPI, Header
from fastapi.responses import Response

from cadre.adapters.nats.connection.connect import NatsClient
from cadre.errors import BusUnavailable
from cadre_gateway.access.gate import Access, Gate
from cadre_gateway.requests import problems
from cadre_gateway.requests.parameters import known_parameters, own_origin
from cadre_gateway.requests.prefix import address
from cadre_gateway.requests.problems import Problem
from cadre_gateway.routes import openapi, tracing
from cadre_gateway.streaming.follow import LiveFeeds

if TYPE_CHECKING:
    from cadre.adapters.otlp import LiveSpans


def build(  # noqa: PLR0913 - the parts of the application
    routers: Iterable[APIRouter],
    feeds: LiveFeeds,
    nc: NatsClient,
    live_spans: LiveSpans | None,
    access: Access,
    provider_routes: APIRouter | None = None,
    doors: Sequence[openapi.Tag] = (),
) -> FastAPI:
    """Return the application of these routes, behind the gate; those to a provider and back take any parameters. While
    the gateway drains or is not connected, it answers none of them. The description names `doors`."""

    async def check_serving() -> None:
        if feeds.draining:
            raise problems.Problem(
                503, "draining", "this gateway is stopping: ask another one, or this one when it is back"
            )
        if not nc.is_connected:
            raise BusUnavailable("serving a request", "not connected to the server")

    # No HTML pages: FastAPI's load their scripts from a public CDN.
    app = FastAPI(
        title="Cadre gateway",
        version="1",
        docs_url=None,
        redoc_url=None,
        root_path_in_servers=False,
        telemetry={
            "tracing": live_spans is not None,
            "tracer_provider": live_spans.provider if live_spans is not None else None,
            "operation_spans": False,
            "logs": False,
            "exclude": tracing.is_untraced,
        },
    )
    problems.install(app)
    for router in routers:
        app.include_router(
            router, dependencies=[Depends(own_origin), Depends(check_serving), Depends(known_parameters)]
        )
    if provider_routes is not None:
        app.include_router(provider_routes, dependencies=[Depends(own_origin), Depends(check_serving)])
    # Needs no NATS: the page itself says what the gateway answers meanwhile.
    app.include_router(console_router(), dependencies=[Depends(own_origin), Depends(known_parameters)])
    asks = access.keys is not None
    openapi.describe(app, access.rules, doors, asks_who_calls=asks)
    app.add_middleware(Gate, access=access)
    return app


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
    # Requested again each time, and not sent where the browser has it: after an update no two versions are mixed.
    "Cache-Control": "no-cache",
}

_MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def console_router() -> APIRouter:
    """Return the routes of the console."""
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
        if path == _PAGE:
            asset = page_below(address(""), asset)
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


@functools.lru_cache(maxsize=4)
def page_below(prefix: str, page: Asset) -> Asset:
    """Return the page with its links below the prefix, which its scripts read as well."""
    text = page.data.decode().replace('="/console/', f'="{prefix}/console/')
    return _asset(
        text.replace('name="cadre-path" content=""', f'name="cadre-path" content="{prefix}"').encode(),
        page.media_type,
    )


def load_assets() -> dict[str, Asset]:
    """Return all files of the console by their path below `web`."""
    return dict(_assets(files("cadre_gateway.console") / "web", ""))


def _assets(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            found += _assets(entry, path + "/")
        elif (media_type := _MEDIA_TYPES.get(entry.name.rpartition(".")[2])) is not None:
            found.append((path, _asset(entry.read_bytes(), media_type)))
    return found


def _asset(data: bytes, media_type: str) -> Asset:
    return Asset(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
