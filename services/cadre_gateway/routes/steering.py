"""The HTTP routes of what people send to runs that go on."""

from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response

from cadre.api.steering import Delivered
from cadre_gateway.requests import body
from cadre_gateway.requests.headers import utf8
from cadre_gateway.requests.idempotency import IdempotencyHeader, checked_key
from cadre_gateway.requests.trace_link import trace_headers
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer
from cadre_gateway.runs.steer import Steering

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

UserHeader = Annotated[str | None, Header(alias="Cadre-User")]


def router(steering: Steering) -> APIRouter:
    """The routes of signals and messages."""
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
        found = await steering.signal(run, name, payload, checked_key(key_header), utf8(cadre_user) or "")
        return _answer(found)

    @routes.post("/{run}/messages", summary="Say something to a run", openapi_extra=_MESSAGE)
    async def post_message(
        run: str, request: Request, key_header: IdempotencyHeader = None, cadre_user: UserHeader = None
    ) -> Response:
        """The run's model reads it with its next call. 409 when the run is over, or keeps as many as it can."""
        said = body.message(await body.read(request))
        by = utf8(cadre_user) or said.by
        return _answer(await steering.tell(run, said.text, said.mode, checked_key(key_header), by))

    return routes


def _answer(delivered: Delivered) -> Response:
    answer = json_answer(delivered, 202 if delivered.at is None else 200)
    answer.headers.update(trace_headers(delivered.run))
    return answer
