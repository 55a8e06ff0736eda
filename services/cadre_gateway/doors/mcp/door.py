"""The door for clients of MCP: one route, streamable HTTP without sessions, so that any gateway answers any message."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from starlette.types import Message, Receive, Scope, Send

from cadre.settings import read
from cadre_gateway.access.audit import leave_out, note
from cadre_gateway.doors.door_meter import count_request
from cadre_gateway.doors.mcp.run_tools import RECORDED
from cadre_gateway.doors.mcp.tools import McpSettings, Tools, server_of
from cadre_gateway.doors.run_service import RunService
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem

# The package tells of the begin and the end of each exchange.
logging.getLogger("mcp.server").setLevel(logging.WARNING)

_PATH = "/mcp"
_CLIENT_ERROR, _SERVER_ERROR = 400, 500
_MAX_CHARS = 200


def router(runs: RunService) -> APIRouter:
    """The route of the door. The protocol describes itself, so the gateway's own description leaves it out."""
    routes = APIRouter(route_class=_McpRoute, include_in_schema=False)
    server = server_of(Tools(runs, read(McpSettings, "CADRE_MCP_")))

    @routes.api_route(_PATH, methods=["GET", "POST", "DELETE"])
    async def exchange(request: Request) -> Response:
        if request.method != "POST":
            raise Problem(405, "method-not-allowed", "there are no sessions here: POST each message")
        data = await body.read(request)
        _note_for_audit(request, data)
        return _Exchange(server, data)

    return routes


class _Exchange(Response):
    """One message and its answer, spoken by the package in the era that the message names."""

    def __init__(self, server: Server[Any], data: bytes) -> None:
        super().__init__()
        self._server, self._data = server, data

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers; without a session nothing outlives the exchange."""
        is_read = False

        async def receive_again() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": self._data, "more_body": False}

        request = Request(scope)

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= _CLIENT_ERROR:
                known = getattr(request.state, "problem", None)
                # Unless one of ours is known, the protocol's own code has refused it.
                request.state.problem = known or Problem(
                    message["status"], "invalid-request", "no message of MCP"
                )
            await send(message)

        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, max_request_body_size=body.MAX_BODY_BYTES
        )
        async with manager.run():
            await manager.handle_request(scope, receive_again, send_and_note)
        _count(request)


class _McpRoute(APIRoute):
    """A route whose errors are those of JSON-RPC, under the status that they have in HTTP."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_in_form(request: Request) -> Response:
            try:
                return await handle(request)
            except FORESEEN as error:
                problem = as_problem(error)
                request.state.problem = problem
                _count(request)
                return _refusal(problem)

        return handle_in_form


def _refusal(problem: Problem) -> Response:
    refused = PARSE_ERROR if problem.code == "parse-error" else INVALID_REQUEST
    code = INTERNAL_ERROR if problem.status >= _SERVER_ERROR else refused
    error = {"code": code, "message": problem.detail, "data": {"code": problem.code}}
    content = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    headers = dict(problem.headers) | ({"Allow": "POST"} if problem.code == "method-not-allowed" else {})
    return Response(content, problem.status, headers, media_type="application/json")


def _count(request: Request) -> None:
    count_request(request, "mcp", _PATH, getattr(request.state, "problem", None))


def _note_for_audit(request: Request, data: bytes) -> None:
    """Has calls that steer runs written down; who started one stands in its journal."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise Problem(400, "parse-error", "the body must be one JSON-RPC message in UTF-8") from None
    method = message.get("method") if isinstance(message, dict) else None
    asked = message.get("params") if isinstance(message, dict) else None
    params = asked if isinstance(asked, dict) else {}
    if method in ("tasks/update", "tasks/cancel"):
        note(request, tool=method, run=str(params.get("taskId"))[:_MAX_CHARS])
    elif method == "tools/call" and isinstance(said := params.get("inputResponses"), dict) and said:
        calls = ", ".join(said)[:_MAX_CHARS]
        note(request, tool=str(params.get("name"))[:_MAX_CHARS], call=calls)
    elif method == "tools/call" and params.get("name") in RECORDED:
        arguments = params.get("arguments")
        given = arguments if isinstance(arguments, dict) else {}
        told = {key: str(given[key])[:_MAX_CHARS] for key in ("run", "call", "decision") if key in given}
        note(request, tool=params["name"], **told)
    else:
        leave_out(request)
