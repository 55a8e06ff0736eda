"""The HTTP routes of calls that wait for a person: list, show, decide."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response

from cadre.api.runs import Approval, ApprovalDecision
from cadre.protocol.topology import tree_of
from cadre_gateway.access.audit import note
from cadre_gateway.access.principal import caller_of
from cadre_gateway.index.call_list import CallFilter
from cadre_gateway.requests import body
from cadre_gateway.requests.headers import utf8
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.requests.trace_link import trace_headers
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer
from cadre_gateway.steering.approvals import Approvals
from cadre_gateway.steering.decide import ApprovalDecisions

_RULE = openapi.operation(
    body.RulingBody,
    {
        "200": ("It counts, or says what was decided before", ApprovalDecision),
        "202": ("Kept until the agent is back; it will count", ApprovalDecision),
    },
)


def router(approvals: Approvals, decisions: ApprovalDecisions) -> APIRouter:
    """The routes of approvals."""
    routes = APIRouter(prefix="/v1/approvals", tags=["approvals"])

    @routes.get(
        "",
        summary="Calls that wait for a person, or were decided, newest first",
        responses=openapi.answers(openapi.ApprovalList),
    )
    async def get_approvals(  # noqa: PLR0913 - one for each parameter of the query
        request: Request,
        agent: str | None = None,
        run: str | None = None,
        tree: str | None = None,
        state: Literal["pending", "decided"] = "pending",
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        before: str | None = None,
    ) -> Response:
        """`run` stands for itself and all runs below it. Long arguments are cut here (`cut` says so). Of the calls that
        were decided the list has the newest 200 of each tree, without their schema."""
        async with answer_deadline():
            wanted = CallFilter(agent, run, tree, caller_of(request).reach)
            if state == "decided":
                page = await approvals.decided(wanted, limit, before)
            else:
                page = await approvals.page(wanted, limit, before)
        return json_answer(openapi.ApprovalList(page.calls, page.next))

    @routes.get("/{call}", summary="One call", responses=openapi.answers(Approval))
    async def get_approval(call: str) -> Response:
        """Shows the call with its arguments whole, also after it was decided."""
        async with answer_deadline():
            return json_answer(await approvals.find(call))

    @routes.post("/{call}", summary="Decide", openapi_extra=_RULE)
    async def post_approval(
        call: str,
        request: Request,
        cadre_user: Annotated[str | None, Header()] = None,
        traceparent: Annotated[str | None, Header()] = None,
    ) -> Response:
        """200 when this decision counts (or says what was decided before), 202 when the agent is down at the
        moment (it is kept and will count), 409 when another was first."""
        wanted = body.ruling(await body.read(request), utf8(cadre_user))
        note(request, by=wanted.by, decision=wanted.verdict, tool=wanted.tool or "")
        ruled = await decisions.decide(call, wanted, traceparent)
        answer = json_answer(ruled, 202 if ruled.at is None else 200)
        answer.headers.update(trace_headers(tree_of(call)))
        return answer

    return routes
