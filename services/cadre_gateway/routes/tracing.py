"""The HTTP route of a run's trace, and which requests have no span."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import Headers
from starlette.types import Scope

from cadre.api.traces import TraceTree
from cadre.ports import Clock
from cadre.telemetry.tracing.otlp_json import otlp_json
from cadre.telemetry.tracing.page import page
from cadre.telemetry.tracing.spans import link_to
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.reading.traces import MAX_SPANS, page_of_spans, spans_of, tree_of_spans
from cadre_gateway.requests.headers import MAX_SEQ
from cadre_gateway.requests.problems import answer_deadline, invalid
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer

_PROBES = ("/healthz", "/readyz", "/metrics")
_READING = ("GET", "HEAD", "OPTIONS")
_HARMLESS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
"""The page shows what others wrote, and has no use for anything but its own style."""


def router(lookup: RunLookup, clock: Clock, *, content: bool) -> APIRouter:
    """The route of traces; `content` lets spans show what models and tools were sent."""
    routes = APIRouter(prefix="/v1/runs", tags=["runs"])

    @routes.get("/{run}/trace", summary="The trace of a run", responses=openapi.traces(TraceTree))
    async def get_trace(
        run: str,
        format: Literal["tree", "otlp", "html"] = "tree",
        limit: Annotated[int | None, Query(ge=1, le=MAX_SPANS)] = None,
        after: Annotated[int, Query(ge=0, le=MAX_SEQ)] = 0,
    ) -> Response:
        """Computed from the journals of the run and all below it, also while it goes on. `otlp` is OTLP in JSON, of
        the spans that have ended; `html` one page for people. With `limit` a `tree` has so many spans behind the first
        `after`, in the order in which they ended; `next` is the `after` of the next page."""
        if (limit is None and after) or (limit is not None and format != "tree"):
            raise invalid("limit: only a tree has pages; after: send it with limit")
        async with answer_deadline():
            summary = await lookup.find(run)
            if limit is not None:
                some, following = await page_of_spans(
                    lookup, summary.tree, run, now=clock.now(), content=content, limit=limit, after=after
                )
                return json_answer(await asyncio.to_thread(tree_of_spans, run, some, following))
            spans = await spans_of(lookup, summary.tree, run, now=clock.now(), content=content)
        match format:
            case "otlp":
                return json_answer(await asyncio.to_thread(otlp_json, spans))
            case "html":
                html = await asyncio.to_thread(page, spans, f"{summary.agent} {run}")
                return HTMLResponse(html, headers=_HARMLESS)
            case _:
                return json_answer(await asyncio.to_thread(tree_of_spans, run, spans))

    return routes


def is_untraced(scope: Scope) -> bool:
    """Probes, streams that last as long as a run, and reading that is no part of a trace of the caller's: a span of
    these would tell nothing."""
    path: str = scope.get("path", "")
    if path in _PROBES or path.endswith("/events"):
        return True
    return scope.get("method") in _READING and not link_to(Headers(scope=scope).get("traceparent"))
