"""A2A's binding to plain HTTP and JSON, for protocol version 1.0."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from cadre_gateway.doors.a2a.errors import status_of_error
from cadre_gateway.doors.a2a.json_rpc import AGENT, frame
from cadre_gateway.doors.a2a.methods import AgentTasks
from cadre_gateway.doors.a2a.perform import check_version, perform
from cadre_gateway.doors.a2a.task_object import Json
from cadre_gateway.doors.answer_json import json_answer
from cadre_gateway.doors.door_meter import count_request
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem
from cadre_gateway.streaming.event_stream import EventStream

Length = Annotated[int | None, Query(alias="historyLength")]


def add_routes(routes: APIRouter, tasks: AgentTasks) -> None:
    """Adds the routes of the binding: those with a verb behind the task's id come first."""

    async def answer(
        agent: str, method: str, params: Json | None, request: Request, **of_path: str
    ) -> Response:
        problem = None
        try:
            check_version(request)
            wanted = params if params is not None else await _body(request) | of_path
            result = await perform(tasks, agent, method, wanted, request)
            found = _stream(result) if isinstance(result, AsyncGenerator) else json_answer(result)
        except FORESEEN as error:
            problem = as_problem(error)
            found = _refusal(problem)
        count_request(request, "a2a", request.scope["route"].path, problem)
        return found

    @routes.post(f"{AGENT}/message:send", summary="A message to an agent")
    async def post_message(agent: str, request: Request) -> Response:
        return await answer(agent, "SendMessage", None, request)

    @routes.post(f"{AGENT}/message:stream", summary="The same, with what happens on the way")
    async def post_stream(agent: str, request: Request) -> Response:
        return await answer(agent, "SendStreamingMessage", None, request)

    @routes.post(f"{AGENT}/tasks/{{run}}:cancel", summary="End a task")
    async def post_cancel(agent: str, run: str, request: Request) -> Response:
        return await answer(agent, "CancelTask", None, request, id=run)

    @routes.api_route(f"{AGENT}/tasks/{{run}}:subscribe", methods=["GET", "POST"], summary="Follow a task")
    async def subscribe(agent: str, run: str, request: Request) -> Response:
        return await answer(agent, "SubscribeToTask", {"id": run}, request)

    pushes = f"{AGENT}/tasks/{{run}}/pushNotificationConfigs"

    @routes.post(pushes, summary="Have an address told how a task goes")
    async def post_push(agent: str, run: str, request: Request) -> Response:
        return await answer(agent, "CreateTaskPushNotificationConfig", None, request, taskId=run)

    @routes.get(pushes, summary="The addresses of a task")
    async def get_pushes(agent: str, run: str, request: Request) -> Response:
        return await answer(agent, "ListTaskPushNotificationConfigs", {"taskId": run}, request)

    @routes.get(f"{pushes}/{{push}}", summary="An address of a task")
    async def get_push(agent: str, run: str, push: str, request: Request) -> Response:
        return await answer(agent, "GetTaskPushNotificationConfig", {"taskId": run, "id": push}, request)

    @routes.delete(f"{pushes}/{{push}}", summary="Have an address told no more")
    async def delete_push(agent: str, run: str, push: str, request: Request) -> Response:
        return await answer(agent, "DeleteTaskPushNotificationConfig", {"taskId": run, "id": push}, request)

    @routes.get(f"{AGENT}/tasks/{{run}}", summary="A task")
    async def get_task(agent: str, run: str, request: Request, length: Length = None) -> Response:
        return await answer(agent, "GetTask", {"id": run, "historyLength": length}, request)

    @routes.get(f"{AGENT}/tasks", summary="Tasks")
    async def get_tasks(  # noqa: PLR0913 - as the protocol names them
        agent: str,
        request: Request,
        context: Annotated[str, Query(alias="contextId")] = "",
        status: str = "",
        size: Annotated[int, Query(alias="pageSize")] = 50,
        token: Annotated[str, Query(alias="pageToken")] = "",
        length: Length = None,
        artifacts: Annotated[bool, Query(alias="includeArtifacts")] = False,
    ) -> Response:
        wanted: Json = {"contextId": context, "status": status, "pageSize": size, "pageToken": token}
        wanted |= {"historyLength": length, "includeArtifacts": artifacts}
        return await answer(agent, "ListTasks", wanted, request)


async def _body(request: Request) -> Json:
    try:
        found: Any = msgspec.json.decode(await body.read(request) or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "not-json", f"the body is not a JSON object: {error}") from error
    return dict(found)


def _refusal(problem: Problem) -> Response:
    status, content = status_of_error(problem)
    return json_answer(content, status)


def _stream(events: AsyncGenerator[Json]) -> Response:
    async def frames() -> AsyncGenerator[bytes]:
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    yield frame(event)
        except FORESEEN as error:
            yield frame(status_of_error(as_problem(error))[1])

    return EventStream(frames())
