"""The HTTP routes of triggers: list, make, show, remove, and the webhooks that start runs."""

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre.api.automations import TriggerView
from cadre.automation.trigger import TriggerSpec
from cadre_gateway.access.principal import caller_of
from cadre_gateway.automation.trigger_intake import TriggerIntake
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import answer_deadline
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer, run_headers
from cadre_gateway.routes.automation.schedules import StartedRun, spec_of

_PUT = openapi.operation(TriggerSpec, {"200": ("Made or replaced", TriggerView)})
_POST = openapi.operation("application/json", {"202": ("Started", StartedRun)})


class TriggerList(msgspec.Struct):
    """All triggers, by name."""

    triggers: list[TriggerView]


def router(triggers: TriggerIntake) -> APIRouter:
    """The routes of triggers."""
    routes = APIRouter(prefix="/v1/triggers", tags=["triggers"])

    @routes.get("", summary="All triggers, by name", responses=openapi.answers(TriggerList))
    async def get_triggers() -> Response:
        async with answer_deadline():
            return json_answer(TriggerList(await triggers.all()))

    @routes.get("/{name}", summary="One trigger", responses=openapi.answers(TriggerView))
    async def get_trigger(name: str) -> Response:
        async with answer_deadline():
            return json_answer(await triggers.show(name))

    @routes.put("/{name}", summary="Make or replace a trigger", openapi_extra=_PUT)
    async def put_trigger(name: str, request: Request) -> Response:
        spec = await spec_of(TriggerSpec, name, request)
        async with answer_deadline():
            return json_answer(await triggers.put(caller_of(request), spec))

    @routes.delete("/{name}", summary="Remove a trigger", status_code=204, response_class=Response)
    async def delete_trigger(name: str) -> Response:
        async with answer_deadline():
            await triggers.remove(name)
        return Response(status_code=204)

    @routes.post("/{name}", summary="Start a run by a signed webhook", status_code=202, openapi_extra=_POST)
    async def post_webhook(name: str, request: Request) -> Response:
        """Signed as Standard Webhooks has it; the body goes into the trigger's template. A message that is sent again
        finds the run that it started."""
        data = await body.read(request)
        async with answer_deadline():
            run = await triggers.on_webhook(name, dict(request.headers), data)
        answer = json_answer(StartedRun(run), 202)
        answer.headers.update(run_headers(run))
        return answer

    return routes
