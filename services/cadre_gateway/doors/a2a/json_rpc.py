"""Serve A2A over JSON-RPC, for protocol versions 1.0 and 0.3."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response

from cadre_gateway.doors.a2a.errors import error_of
from cadre_gateway.doors.a2a.methods import AgentTasks
from cadre_gateway.doors.a2a.perform import check_version, perform
from cadre_gateway.doors.a2a.request import RpcCall
from cadre_gateway.doors.a2a.task_object import Json
from cadre_gateway.doors.a2a.v03 import METHODS, params_of, result_of
from cadre_gateway.doors.answer_json import json_answer
from cadre_gateway.doors.door_meter import count_request
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem
from cadre_gateway.streaming.event_stream import EventStream

AGENT = "/a2a/{agent}"

RpcId = str | int | None


def add_routes(routes: APIRouter, tasks: AgentTasks) -> None:
    """Adds the one route of the binding."""

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
    check_version(request)
    method = METHODS.get(call.method, call.method)
    is_old = call.method != method
    told = result_of if is_old else _as_it_is
    params = params_of(method, call.params) if is_old else call.params
    result = await perform(tasks, agent, method, params, request)
    if isinstance(result, AsyncGenerator):
        return _stream(call.id, result, told)
    return json_answer({"jsonrpc": "2.0", "id": call.id, "result": told(result)})


def _as_it_is(result: Json) -> Json:
    return result


def _refusal(rpc_id: RpcId, problem: Problem) -> Json:
    return {"jsonrpc": "2.0", "id": rpc_id, "error": error_of(problem)}


def _stream(rpc_id: RpcId, events: AsyncGenerator[Json], told: Callable[[Json], Json]) -> Response:
    async def frames() -> AsyncGenerator[bytes]:
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    yield frame({"jsonrpc": "2.0", "id": rpc_id, "result": told(event)})
        except FORESEEN as error:
            yield frame(_refusal(rpc_id, as_problem(error)))

    return EventStream(frames())


def frame(value: Json) -> bytes:
    """One event of a stream."""
    return b"data: %s\n\n" % msgspec.json.encode(value)
