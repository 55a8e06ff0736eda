"""The HTTP routes of what people send to runs that go on."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response

from cadre.api.runs import (
    Approval,
    ApprovalDecision,
    Delivered,
    Edited,
)
from cadre.protocol.topology import tree_of
from cadre_gateway.access.audit import note
from cadre_gateway.access.principal import caller_of
from cadre_gateway.index.lists import CallFilter
from cadre_gateway.requests import body
from cadre_gateway.requests.idempotency import IdempotencyHeader, owned_key
from cadre_gateway.requests.parameters import utf8
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.requests.trace_link import trace_headers
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import json_answer
from cadre_gateway.steering.approvals import ApprovalDecisions, Approvals
from cadre_gateway.steering.steer import Steering

_SIGNAL = openapi.operation(
    "application/json",
    {
        "200": ("The run has it", Delivered),
        "202": ("Kept until the agent takes it up", Delivered),
    },
    required=False,
)

_MESSAGE = openapi.operation(
    body.MessageBody,
    {
        "200": ("The run has it", Delivered),
        "202": ("Kept until the agent takes it up", Delivered),
    },
)

_EDIT = openapi.operation(
    body.EditBody,
    {
        "200": ("As it is now", Edited),
        "202": ("Kept until the agent takes it up, which may refuse it", Delivered),
    },
)

UserHeader = Annotated[str | None, Header(alias="Cadre-User")]


def router(steering: Steering) -> APIRouter:
    """Return the routes of signals, messages and edits."""
    routes = APIRouter(prefix="/v1/runs", tags=["steering"])

    @routes.post("/{run}/signals/{name}", summary="Send a signal to a run", openapi_extra=_SIGNAL)
    async def post_signal(
        run: str,
        name: str,
        request: Request,
        key_header: IdempotencyHeader = None,
        cadre_user: UserHeader = None,
    ) -> Response:
        """The body is the payload, any JSON value; without one it is null. 409 when the run is over, or keeps as many
        signals as it can."""
        payload = body.payload(await body.read(request))
        key = owned_key(caller_of(request).owner, key_header)
        return _answer(await steering.signal(run, name, payload, key, utf8(cadre_user) or ""))

    @routes.post("/{run}/messages", summary="Say something to a run", openapi_extra=_MESSAGE)
    async def post_message(
        run: str, request: Request, key_header: IdempotencyHeader = None, cadre_user: UserHeader = None
    ) -> Response:
        """The run's model reads it with its next call. 409 when the run is over, or keeps as many as it can."""
        said = body.message(await body.read(request))
        by, key = utf8(cadre_user) or said.by, owned_key(caller_of(request).owner, key_header)
        return _answer(await steering.tell(run, said.text, said.mode, key, by))

    @routes.get("/{run}/queue", summary="What a run has queued", responses=openapi.answers(Edited))
    async def get_queue(run: str) -> Response:
        """The queue of tasks, and the version that an edit names."""
        return json_answer(await steering.editable(run, "queue"))

    @routes.get("/{run}/plan", summary="What a run plans", responses=openapi.answers(Edited))
    async def get_plan(run: str) -> Response:
        """The plan, and the version that an edit names."""
        return json_answer(await steering.editable(run, "plan"))

    @routes.patch("/{run}/queue", summary="Edit what a run has queued", openapi_extra=_EDIT)
    async def patch_queue(
        run: str, request: Request, key_header: IdempotencyHeader = None, cadre_user: UserHeader = None
    ) -> Response:
        """200 with the queue as it is then; 409 with its version when it has changed meanwhile."""
        return await edited(run, "queue", request, key_header, cadre_user)

    @routes.patch("/{run}/plan", summary="Edit what a run plans", openapi_extra=_EDIT)
    async def patch_plan(
        run: str, request: Request, key_header: IdempotencyHeader = None, cadre_user: UserHeader = None
    ) -> Response:
        """200 with the plan as it is then; 409 with its version when it has changed meanwhile."""
        return await edited(run, "plan", request, key_header, cadre_user)

    async def edited(run: str, name: str, request: Request, key: str | None, user: str | None) -> Response:
        wanted = body.edit(await body.read(request))
        owned = owned_key(caller_of(request).owner, key)
        found = await steering.edit(run, name, wanted, owned, utf8(user) or wanted.by)
        return _answer(found) if isinstance(found, Delivered) else json_answer(found)

    return routes


def _answer(delivered: Delivered) -> Response:
    answer = json_answer(delivered, 202 if delivered.at is None else 200)
    answer.headers.update(trace_headers(delivered.run))
    return answer


_RULE = openapi.operation(
    body.RulingBody,
    {
        "200": ("It counts, or says what was decided before", ApprovalDecision),
        "202": ("Kept until the agent is back; it will count", ApprovalDecision),
    },
)


def approvals_router(approvals: Approvals, decisions: ApprovalDecisions) -> APIRouter:
    """Return the routes of approvals."""
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
    async def get_approval(call: str, request: Request) -> Response:
        """Shows the call with its arguments whole, also after it was decided."""
        async with answer_deadline():
            return json_answer(await approvals.find(call, caller_of(request).reach))

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
        note(request, by=wanted.by, verdict=wanted.verdict, tool=wanted.tool or "")
        ruled = await decisions.decide(call, wanted, traceparent, caller_of(request).titles)
        answer = json_answer(ruled, 202 if ruled.at is None else 200)
        answer.headers.update(trace_headers(tree_of(call)))
        return answer

    return routes
