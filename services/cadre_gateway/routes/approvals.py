"""The HTTP routes of calls that wait for a person: list, show, decide."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response

from cadre.protocol.topology import tree_of
from cadre_gateway.desk import ANSWER_WITHIN, Desk
from cadre_gateway.requests import body
from cadre_gateway.routes import openapi
from cadre_gateway.routes.tracing import trace_headers
from cadre_gateway.runs import approvals


def router(desk: Desk) -> APIRouter:
    routes = APIRouter(prefix="/v1/approvals", tags=["approvals"])

    @routes.get(
        "",
        summary="Calls that wait for a person, newest first",
        responses=openapi.answers(openapi.ApprovalList),
    )
    async def get_approvals(
        agent: str | None = None,
        run: str | None = None,
        tree: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: str | None = None,
    ) -> Response:
        """`run` stands for itself and all runs below it. Long arguments are cut here (`cut` says so)."""
        async with asyncio.timeout(ANSWER_WITHIN):
            page = await approvals.page(desk, agent=agent, run=run, tree=tree, limit=limit, before=before)
        return _json(openapi.ApprovalList(page.calls, page.next))

    @routes.get("/{call}", summary="One call", responses=openapi.answers(approvals.Approval))
    async def get_approval(call: str) -> Response:
        """Also after it was decided, and with its arguments whole."""
        async with asyncio.timeout(ANSWER_WITHIN):
            return _json(await approvals.one(desk, call))

    @routes.post("/{call}", summary="Decide", openapi_extra=openapi.ruling())
    async def post_approval(
        call: str,
        request: Request,
        cadre_user: Annotated[str | None, Header()] = None,
        traceparent: Annotated[str | None, Header()] = None,
    ) -> Response:
        """200 when this decision counts (or says what was decided before), 202 when the agent is down at the
        moment (it is kept and will count), 409 when another was first."""
        wanted = body.ruling(await body.read(request), _as_sent(cadre_user))
        ruled = await approvals.decide(desk, call, wanted, traceparent)
        answer = _json(ruled, 202 if ruled.at is None else 200)
        answer.headers.update(trace_headers(tree_of(call)))
        return answer

    return routes


def _as_sent(header: str | None) -> str | None:
    """Headers arrive as Latin-1; proxies write names in UTF-8 into them."""
    try:
        return header.encode("latin-1").decode() if header else header
    except UnicodeDecodeError:
        return header


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
