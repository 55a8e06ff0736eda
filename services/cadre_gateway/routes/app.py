"""Build the HTTP application: its routes, its checks of every request, its description at /openapi.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastapi import APIRouter, Depends, FastAPI

from cadre.adapters.nats.connection.connect import NatsClient
from cadre.errors import BusUnavailable
from cadre_gateway.access.gate import Access, Gate
from cadre_gateway.requests import problems
from cadre_gateway.requests.headers import own_origin
from cadre_gateway.requests.parameters import known_parameters
from cadre_gateway.routes import openapi, tracing
from cadre_gateway.routes.console import console_router
from cadre_gateway.streaming.live_feeds import LiveFeeds

if TYPE_CHECKING:
    from cadre.adapters.otlp import LiveSpans


def build(
    routers: Iterable[APIRouter],
    feeds: LiveFeeds,
    nc: NatsClient,
    live_spans: LiveSpans | None,
    access: Access,
    provider_routes: APIRouter | None = None,
) -> FastAPI:
    """The application of these routes, behind the gate; those to a provider and back take any parameters. While the
    gateway drains or is not connected, it answers none of them."""

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
    openapi.describe(app)
    app.add_middleware(Gate, access=access)
    return app
