"""The HTTP routes of definitions: list, make, show, replace, remove; pause, resume and run a schedule; webhooks."""

from types import GenericAlias
from typing import Annotated, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from cadre.api.automations import ScheduleView, TriedTrigger
from cadre.automation.automation_file import Spec, automation_of
from cadre.automation.schedule import ScheduleSpec
from cadre.errors import SpecError
from cadre_gateway.access.principal import caller_of
from cadre_gateway.automation.editors import ScheduleEditor
from cadre_gateway.automation.resource import Resource
from cadre_gateway.automation.trigger_intake import TriggerIntake
from cadre_gateway.requests import body
from cadre_gateway.requests.idempotency import IdempotencyHeader, checked_key
from cadre_gateway.requests.problems import answer_deadline, invalid
from cadre_gateway.routes import openapi
from cadre_gateway.routes.openapi import json_answer, run_headers

State = TypeVar("State", bound=msgspec.Struct)
View = TypeVar("View", bound=msgspec.Struct)


class StartedRun(msgspec.Struct):
    """The run that was started."""

    id: str


_POST_SCHEDULE = openapi.operation(ScheduleSpec, {"201": ("Made", ScheduleView)})
_WEBHOOK = openapi.operation("application/json", {"202": ("Started", StartedRun)})
_RUN: openapi.Responses = {
    202: openapi.answers(StartedRun)[200],
    "default": openapi.answers(StartedRun)["default"],
}

_Ticks = Annotated[int, Query(alias="next", ge=0, le=1000)]


def _next_of_list(upcoming: _Ticks = 1) -> int:
    return upcoming


def _next_of_one(upcoming: _Ticks = 5) -> int:
    return upcoming


def _no_ticks() -> int:
    return 0


def router(resource: Resource[Spec, State, View]) -> APIRouter:
    """Return the routes that each kind of definition has."""
    one, view = resource.definition, resource.view
    of_list, of_one = (_next_of_list, _next_of_one) if view is ScheduleView else (_no_ticks, _no_ticks)
    all_of_kind = msgspec.defstruct(
        f"{one.kind}List",
        [(one.plural, GenericAlias(list, (view,)))],
        namespace={"__doc__": f"All {one.plural}, by name."},
    )
    put = openapi.operation(one.spec, {"200": ("Made or replaced", view)})
    listed, shown = openapi.answers(all_of_kind), openapi.answers(view)
    routes = APIRouter(prefix=one.path, tags=[one.plural])

    @routes.get("", name=f"get_{one.plural}", summary=f"All {one.plural}, by name", responses=listed)
    async def get_all(upcoming: Annotated[int, Depends(of_list)]) -> Response:
        async with answer_deadline():
            return json_answer(all_of_kind(await resource.list(upcoming)))

    @routes.get("/{name}", name=f"get_{one.name}", summary=f"One {one.name}", responses=shown)
    async def get(name: str, upcoming: Annotated[int, Depends(of_one)]) -> Response:
        async with answer_deadline():
            return json_answer(await resource.show(name, upcoming))

    @routes.put(
        "/{name}",
        name=f"put_{one.name}",
        summary=f"Make or replace a {one.name}",
        description=one.replaced,
        openapi_extra=put,
    )
    async def put_one(name: str, request: Request) -> Response:
        spec = await _spec_of(one.spec, name, request)
        async with answer_deadline():
            return json_answer(await resource.put(caller_of(request), spec))

    @routes.delete(
        "/{name}",
        name=f"delete_{one.name}",
        summary=f"Remove a {one.name}",
        description=f"{one.removed[0].upper()}{one.removed[1:]}.",
        status_code=204,
        response_class=Response,
    )
    async def delete(name: str) -> Response:
        async with answer_deadline():
            await resource.remove(name)
        return Response(status_code=204)

    return routes


def of_schedules(schedules: ScheduleEditor) -> APIRouter:
    """Return the routes of schedules, which are also paused, resumed and run."""
    routes, shown = router(schedules), openapi.answers(ScheduleView)

    @routes.post("", summary="Make a schedule", status_code=201, openapi_extra=_POST_SCHEDULE)
    async def post_schedule(request: Request) -> Response:
        """201; 409 when there is one of its name."""
        spec = await _spec_of(ScheduleSpec, None, request)
        async with answer_deadline():
            return json_answer(await schedules.put(caller_of(request), spec, only_new=True), 201)

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
        """Start it with the caller's rights, regardless of its times and its overlap policy."""
        async with answer_deadline():
            return _started(await schedules.run(caller_of(request), name, checked_key(key)))

    return routes


def of_triggers(triggers: TriggerIntake) -> APIRouter:
    """Return the routes of triggers, and that of the webhooks which start their runs."""
    routes = router(triggers)

    @routes.post("/{name}", summary="Start a run by a signed webhook", status_code=202, openapi_extra=_WEBHOOK)
    async def post_webhook(name: str, request: Request) -> Response:
        """Signed as Standard Webhooks has it; the body goes into the trigger's template. A message that is sent again
        finds the run that it started."""
        data = await body.read(request)
        async with answer_deadline():
            return _started(await triggers.on_webhook(name, dict(request.headers), data))

    @routes.post(
        "/{name}/try",
        summary="Try a trigger with a message",
        openapi_extra=openapi.operation("application/json", {"200": ("Its task", TriedTrigger)}),
    )
    async def post_try(name: str, request: Request, subject: str = "", start: bool = False) -> Response:
        """The body is the message, unsigned. With `start=true` the run begins, with the caller's rights; else the
        answer has the task alone."""
        data = await body.read(request)
        async with answer_deadline():
            return json_answer(await triggers.attempt(caller_of(request), name, data, subject, start=start))

    return routes


def _started(run: str) -> Response:
    answer = json_answer(StartedRun(run), 202)
    answer.headers.update(run_headers(run))
    return answer


async def _spec_of(kind: type[Spec], name: str | None, request: Request) -> Spec:
    """Return the checked specification in a request's body; its name stands in the body when none is given. Raises a
    400 or 422 problem."""
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
        raise invalid(error.problem, field=error.key) from error
