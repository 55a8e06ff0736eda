"""The HTTP routes of schedules: list, make, show, replace, remove, pause, resume, run."""

from typing import Annotated, TypeVar

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cadre.api.automations import ScheduleView
from cadre.automation.automation_file import automation_of
from cadre.automation.schedule import ScheduleSpec
from cadre.errors import SpecError
from cadre_gateway.access.principal import caller_of
from cadre_gateway.automation.schedule_editor import ScheduleEditor
from cadre_gateway.requests import body
from cadre_gateway.requests.idempotency import IdempotencyHeader, checked_key
from cadre_gateway.requests.problems import answer_deadline, invalid
from cadre_gateway.routes import openapi
from cadre_gateway.routes.answers import json_answer, run_headers


class ScheduleList(msgspec.Struct):
    """All schedules, by name."""

    schedules: list[ScheduleView]


class StartedRun(msgspec.Struct):
    """The run that was started."""

    id: str


_PUT = openapi.operation(ScheduleSpec, {"200": ("Made or replaced", ScheduleView)})
_POST = openapi.operation(ScheduleSpec, {"201": ("Made", ScheduleView)})
_RUN: openapi.Responses = {
    202: openapi.answers(StartedRun)[200],
    "default": openapi.answers(StartedRun)["default"],
}

Spec = TypeVar("Spec", bound=msgspec.Struct)

Upcoming = Annotated[int, Query(alias="next", ge=0, le=1000)]


def router(schedules: ScheduleEditor) -> APIRouter:
    """The routes of schedules."""
    routes = APIRouter(prefix="/v1/schedules", tags=["schedules"])
    shown = openapi.answers(ScheduleView)

    @routes.get("", summary="All schedules, by name", responses=openapi.answers(ScheduleList))
    async def get_schedules(upcoming: Upcoming = 1) -> Response:
        async with answer_deadline():
            return json_answer(ScheduleList(await schedules.list(upcoming)))

    @routes.post("", summary="Make a schedule", status_code=201, openapi_extra=_POST)
    async def post_schedule(request: Request) -> Response:
        """201; 409 when there is one of its name."""
        spec = await spec_of(ScheduleSpec, None, request)
        async with answer_deadline():
            return json_answer(await schedules.put(caller_of(request), spec, only_new=True), 201)

    @routes.get("/{name}", summary="One schedule", responses=shown)
    async def get_schedule(name: str, upcoming: Upcoming = 5) -> Response:
        async with answer_deadline():
            return json_answer(await schedules.show(name, upcoming))

    @routes.put("/{name}", summary="Make or replace a schedule", openapi_extra=_PUT)
    async def put_schedule(name: str, request: Request) -> Response:
        """Replaces all keys. Where its times stay the same, its ticks do; else they are counted from now."""
        spec = await spec_of(ScheduleSpec, name, request)
        async with answer_deadline():
            return json_answer(await schedules.put(caller_of(request), spec))

    @routes.delete("/{name}", summary="Remove a schedule", status_code=204, response_class=Response)
    async def delete_schedule(name: str) -> Response:
        """Its runs go on."""
        async with answer_deadline():
            await schedules.remove(name)
        return Response(status_code=204)

    @routes.post("/{name}/pause", summary="Pause a schedule", responses=shown)
    async def post_pause(name: str) -> Response:
        """Ticks of the pause do not come, and are not missed either."""
        async with answer_deadline():
            return json_answer(await schedules.pause(name))

    @routes.post("/{name}/resume", summary="Resume a schedule", responses=shown)
    async def post_resume(name: str, request: Request) -> Response:
        """One that has paused because its maker may not start its runs goes on with the rights of who resumes it."""
        async with answer_deadline():
            return json_answer(await schedules.resume(caller_of(request), name))

    @routes.post("/{name}/run", summary="Start a run of it now", status_code=202, responses=_RUN)
    async def post_run_now(name: str, request: Request, key: IdempotencyHeader = None) -> Response:
        """Starts it with the caller's rights, whatever its times and its overlap policy say."""
        async with answer_deadline():
            run = await schedules.run(caller_of(request), name, checked_key(key))
        answer = json_answer(StartedRun(run), 202)
        answer.headers.update(run_headers(run))
        return answer

    return routes


async def spec_of(kind: type[Spec], name: str | None, request: Request) -> Spec:
    """The checked specification in a request's body; its name stands in the body when none is given. Raises a 400 or
    422 problem."""
    try:
        given = msgspec.json.decode(await body.read(request))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"the body must be a JSON object: {error}", status=400) from error
    if not isinstance(given, dict):
        raise invalid("the body must be a JSON object", status=400)
    named = given.pop("name", "")
    try:
        return automation_of(kind, str(named) if name is None else name, given)
    except SpecError as error:
        raise invalid(str(error)) from error
