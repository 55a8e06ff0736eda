"""The HTTP routes of what people send to runs that go on."""

from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response

from cadre.api.runs import (
    Delivered,
    Edited,
)
from cadre_gateway.access.principal import caller_of
from cadre_gateway.requests import body
from cadre_gateway.requests.headers import utf8
from cadre_gateway.requests.idempotency import IdempotencyHeader, owned_key
from cadre_gateway.requests.trace_link import trace_headers
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer
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
    """The routes of signals, messages and edits."""
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
