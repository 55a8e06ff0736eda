"""Traces over HTTP: a run's spans from its journals, and what ties a request to the trace of its run."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import msgspec
from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from starlette.types import Scope

from cadre.adapters.otel.current_span import link_current
from cadre.protocol.topology import tree_of
from cadre.telemetry.tracing.ids import agent_span, root_span, trace_id, traceparent_of_run
from cadre.telemetry.tracing.otlp_json import otlp_json
from cadre.telemetry.tracing.page import page
from cadre_gateway.desk import ANSWER_WITHIN, Desk
from cadre_gateway.routes import openapi
from cadre_gateway.runs import lookup
from cadre_gateway.runs.traces import TraceTree, spans_of, tree_of_spans

_PROBES = ("/healthz", "/readyz", "/metrics")
_HARMLESS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
"""The page shows what others wrote, and has no use for anything but its own style."""


def router(desk: Desk) -> APIRouter:
    routes = APIRouter(prefix="/v1/runs", tags=["runs"])

    @routes.get("/{run}/trace", summary="The trace of a run", responses=openapi.answers(TraceTree))
    async def get_trace(run: str, format: Literal["tree", "otlp", "html"] = "tree") -> Response:
        """With all runs below it, from the journals: also while it goes on. `otlp` is OTLP in JSON, of the spans
        that have ended; `html` one page for people."""
        async with asyncio.timeout(ANSWER_WITHIN):
            summary = await lookup.find(desk, run)
            stored = await lookup.read_tree(desk, summary.tree)
        spans = await asyncio.to_thread(spans_of, stored, run, now=time.time(), content=desk.tracing.content)
        match format:
            case "otlp":
                return _json(otlp_json(spans))
            case "html":
                return HTMLResponse(page(spans, f"{summary.agent} {run}"), headers=_HARMLESS)
            case _:
                return _json(await asyncio.to_thread(tree_of_spans, run, spans))

    return routes


def trace_headers(run: str) -> dict[str, str]:
    """What a caller needs to find the run's trace; the span of the request in hand is linked to it."""
    tree = tree_of(run)
    link_current(trace_id(tree), root_span(tree) if run == tree else agent_span(run))
    return {"X-Trace-Id": trace_id(tree), "traceparent": traceparent_of_run(run)}


def is_untraced(scope: Scope) -> bool:
    """Probes, and streams that last as long as a run: a span of these would tell nothing."""
    path: str = scope.get("path", "")
    return path in _PROBES or path.endswith("/events")


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
