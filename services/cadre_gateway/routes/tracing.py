"""Serve a run's trace, computed from its journals, and exclude probes from tracing."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import Headers
from starlette.types import Scope

from cadre.api.runs import TraceSpan, TraceTree
from cadre.journal.entry import Entry
from cadre.ports import Clock, Stored
from cadre.protocol.topology import is_within, tree_of
from cadre.telemetry.tracing.ids import trace_id
from cadre.telemetry.tracing.otlp_json import otlp_json
from cadre.telemetry.tracing.page import TreeTrace, in_order, page
from cadre.telemetry.tracing.spans import SpanRecord, link_to
from cadre_gateway.reading.lookup import RunLookup
from cadre_gateway.requests.parameters import MAX_SEQ
from cadre_gateway.requests.problems import Problem, answer_deadline, invalid
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import json_answer

_PROBES = ("/healthz", "/readyz", "/readyz/self", "/metrics")
_READING = ("GET", "HEAD", "OPTIONS")
_HARMLESS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
"""The page shows what others wrote, and has no use for anything but its own style."""

MAX_SPANS = 50_000
"""The most spans of one answer."""


def router(lookup: RunLookup, clock: Clock, *, content: bool) -> APIRouter:
    """Return the route of traces; `content` lets spans show what models and tools were sent."""
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


async def page_of_spans(  # noqa: PLR0913 - a page of what, and which one
    lookup: RunLookup, tree: str, run: str, *, now: float, content: bool, limit: int, after: int
) -> tuple[list[SpanRecord], int | None]:
    """So many spans behind the first `after`, in the order in which they ended, and what is `after` for the next page.

    Without a next page those of open work come in addition. No more than a page is kept. Raises BusUnavailable.
    """
    trace = TreeTrace(content=content)
    left_out = 0
    async with lookup.pages_of_tree(tree) as pages:
        async for page in pages:
            await asyncio.to_thread(trace.take, _within(page, run))
            surplus = min(after - left_out, len(trace.spans))
            del trace.spans[:surplus]
            left_out += surplus
            if len(trace.spans) > limit:
                return trace.spans[:limit], after + limit
    return trace.until(now), None


async def spans_of(lookup: RunLookup, tree: str, run: str, *, now: float, content: bool) -> list[SpanRecord]:
    """Return the spans of the run and of all runs below it; those of open work end `now`.

    Raises a 422 problem when there are more than MAX_SPANS, BusUnavailable.
    """
    trace = TreeTrace(content=content)
    async with lookup.pages_of_tree(tree) as pages:
        async for page in pages:
            await asyncio.to_thread(trace.take, _within(page, run))
            if len(trace.spans) > MAX_SPANS:
                raise Problem(
                    422,
                    "trace-too-long",
                    f"the trace of run {run} has more than {MAX_SPANS} spans: ask for them in pages (limit, after) or"
                    " for those of a run below it, or let a tracer export them (docs/observability.md)",
                )
    return trace.until(now)


def _within(page: Iterable[Stored], run: str) -> list[Entry]:
    return [one.entry for one in page if is_within(one.entry.run, run)]


def tree_of_spans(
    run: str, spans: list[SpanRecord], following: int | msgspec.UnsetType | None = msgspec.UNSET
) -> TraceTree:
    """Return the spans in the order in which a person reads them; `following` is `after` of the next page."""
    placed = [TraceSpan(**msgspec.structs.asdict(span), depth=depth) for depth, span in in_order(spans)]
    return TraceTree(id=run, trace=trace_id(tree_of(run)), spans=placed, next=following)
