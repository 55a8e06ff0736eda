"""The door for A2A's clients: an address for each agent, its card, and JSON-RPC at it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre_gateway.access.principal import caller_of
from cadre_gateway.doors.a2a import v03
from cadre_gateway.doors.a2a.card import VERSIONS, card_of_agent
from cadre_gateway.doors.a2a.errors import error_of
from cadre_gateway.doors.a2a.methods import AgentTasks
from cadre_gateway.doors.a2a.request import ListParams, RpcCall, SendParams, TaskParams
from cadre_gateway.doors.a2a.sender import Messages, Sender
from cadre_gateway.doors.a2a.task_object import Json
from cadre_gateway.doors.answer_json import json_answer
from cadre_gateway.doors.door_meter import count_request
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.run_service import RunService
from cadre_gateway.reading.directory import card_of
from cadre_gateway.requests import body
from cadre_gateway.requests.headers import utf8
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem, invalid
from cadre_gateway.streaming.event_stream import EventStream

AGENT = "/a2a/{agent}"
CARD = f"{AGENT}/.well-known/agent-card.json"

_PARAMS: dict[str, type[msgspec.Struct]] = {
    "SendMessage": SendParams,
    "SendStreamingMessage": SendParams,
    "GetTask": TaskParams,
    "CancelTask": TaskParams,
    "SubscribeToTask": TaskParams,
    "ListTasks": ListParams,
}
_REFUSED = {
    "GetExtendedAgentCard": ("no-extended-card", "there is one card for everybody"),
    **dict.fromkeys(
        (
            "CreateTaskPushNotificationConfig",
            "GetTaskPushNotificationConfig",
            "ListTaskPushNotificationConfigs",
            "DeleteTaskPushNotificationConfig",
        ),
        ("no-push-notifications", "this agent pushes nothing: stream, or ask again"),
    ),
}

RpcId = str | int | None


def router(runs: RunService) -> APIRouter:
    """The routes of the door. A2A's own specification tells of them, so the gateway's leaves them out."""
    routes = APIRouter(include_in_schema=False)
    answers = Answers(runs.lookup, runs.feeds)
    tasks = AgentTasks(runs, answers, Messages(runs, answers))

    @routes.get(CARD, summary="The card of an agent")
    async def get_card(agent: str, request: Request) -> Response:
        card = card_of(runs.registry.presences(), agent)
        if card is None:
            raise Problem(
                404, "unknown-agent", f"no live agent is named {agent!r}: GET /v1/agents lists them"
            )
        url = f"{str(request.base_url).rstrip('/')}/a2a/{agent}"
        return json_answer(card_of_agent(card, url, asks_who_calls=bool(caller_of(request).key)))

    @routes.post(AGENT, summary="A call of A2A to an agent")
    async def post_call(agent: str, request: Request) -> Response:
        rpc_id: RpcId = None
        problem = None
        try:
            call = await _call(request)
            rpc_id = call.id
            answer = await _answer(tasks, agent, call, request)
        except FORESEEN as error:
            problem = as_problem(error)
            answer = json_answer(_refusal(rpc_id, problem))
        count_request(request, "a2a", AGENT, problem)
        return answer

    return routes


async def _call(request: Request) -> RpcCall:
    data = await body.read(request)
    try:
        call = msgspec.json.decode(data, type=RpcCall)
    except msgspec.ValidationError as error:
        raise Problem(400, "not-a-call", f"not a call of JSON-RPC 2.0: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "not-json", f"the body is not JSON: {error}") from error
    if call.jsonrpc != "2.0":
        raise Problem(400, "not-a-call", 'not a call of JSON-RPC 2.0: write `"jsonrpc": "2.0"`')
    return call


async def _answer(tasks: AgentTasks, agent: str, call: RpcCall, request: Request) -> Response:
    version = request.headers.get("a2a-version") or VERSIONS[0]
    if version not in VERSIONS:
        raise Problem(
            400, "unknown-version", f"A2A-Version {version!r}: this agent speaks {', '.join(VERSIONS)}"
        )
    method = v03.METHODS.get(call.method, call.method)
    if method in _REFUSED:
        raise Problem(400, *_REFUSED[method])
    if method not in _PARAMS:
        raise Problem(400, "unknown-method", f"no method {call.method!r}: {', '.join(_PARAMS)}")
    is_old = call.method != method
    params: Any = _read(v03.params_of(call.params) if is_old else call.params, _PARAMS[method])
    caller = caller_of(request)
    named = utf8(request.headers.get("cadre-user"))  # the gate's own word where it asks who calls
    sender = Sender(caller, named or caller.name, request.headers.get("traceparent"))
    told = v03.result_of if is_old else _as_it_is
    match method:
        case "SendStreamingMessage":
            return _stream(call.id, await tasks.send_streaming(agent, params, sender), told)
        case "SubscribeToTask":
            return _stream(call.id, await tasks.subscribe(agent, params), told)
        case "SendMessage":
            result = await tasks.send(agent, params, sender)
        case "GetTask":
            result = await tasks.get(agent, params)
        case "CancelTask":
            result = await tasks.cancel(agent, params)
        case _:
            result = await tasks.list(agent, params)
    return json_answer({"jsonrpc": "2.0", "id": call.id, "result": told(result)})


def _as_it_is(result: Json) -> Json:
    return result


def _read(params: dict[str, Any], kind: type[msgspec.Struct]) -> Any:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"params: {error}") from error


def _refusal(rpc_id: RpcId, problem: Problem) -> Json:
    return {"jsonrpc": "2.0", "id": rpc_id, "error": error_of(problem)}


def _stream(rpc_id: RpcId, events: AsyncGenerator[Json], told: Callable[[Json], Json]) -> Response:
    async def frames() -> AsyncGenerator[bytes]:
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    yield _frame({"jsonrpc": "2.0", "id": rpc_id, "result": told(event)})
        except FORESEEN as error:
            yield _frame(_refusal(rpc_id, as_problem(error)))

    return EventStream(frames())


def _frame(value: Json) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(value)
