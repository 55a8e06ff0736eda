"""Serve clients of MCP at one route, with a tool for each agent and a few for their runs.

It is streamable HTTP without sessions, so any gateway answers any message.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Literal, NoReturn

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
)
from starlette.types import Message, Receive, Scope, Send

from cadre import __version__
from cadre.api.runs import RunSummary
from cadre.delivery.codec import on_one_line
from cadre.protocol.access import Right
from cadre.settings import read
from cadre_gateway.access.audit import leave_out, note
from cadre_gateway.access.principal import caller_of
from cadre_gateway.doors.answers import count_request
from cadre_gateway.doors.mcp import tools
from cadre_gateway.doors.mcp.client import EXTENSION, SESSION, Cancellations, Context, request_of
from cadre_gateway.doors.mcp.tasks import Listening, McpTaskParams, Tasks, UpdateParams, created
from cadre_gateway.doors.mcp.tools import RECORDED, AgentTools, RunTools, problem_result
from cadre_gateway.doors.sender import RunService
from cadre_gateway.requests import body
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem

# The package logs the start and the end of each exchange.
logging.getLogger("mcp.server").setLevel(logging.WARNING)

_PATH = "/mcp"
_CLIENT_ERROR, _SERVER_ERROR = 400, 500
_MAX_CHARS = 200

_INSTRUCTIONS = (
    "Each agent is a tool: give it a task, and it answers when it is done, with progress meanwhile. A call that waits"
    " for a person has the person asked, or comes back with what is asked; cadre_get_run then waits for the answer."
    " Send `cadre.dev/idempotency-key` in `_meta` to find the same run again when a call is repeated."
)


def router(runs: RunService) -> APIRouter:
    """Return the route of the door. The protocol describes itself, so the gateway's own description leaves it out."""
    routes = APIRouter(route_class=_McpRoute, include_in_schema=False)
    server = server_of(Tools(runs, read(McpSettings, "CADRE_MCP_")))
    cancelled = Cancellations(runs)

    @routes.api_route(_PATH, methods=["GET", "POST", "DELETE"])
    async def exchange(request: Request) -> Response:
        if request.method != "POST":
            raise Problem(405, "method-not-allowed", "there are no sessions here: POST each message")
        data = await body.read(request)
        message = _note_for_audit(request, data)
        if not request.headers.get("accept"):
            accepts = (b"accept", b"application/json, text/event-stream")
            request.scope["headers"] = [*request.scope["headers"], accepts]
        if message.get("method") == "notifications/cancelled":
            params = message.get("params")
            await cancelled.end(request, params.get("requestId") if isinstance(params, dict) else None)
        begins = message.get("method") == "initialize"
        return _Exchange(server, data, secrets.token_hex(16) if begins else "")

    return routes


class _Exchange(Response):
    """One message and its answer, spoken by the package in the era that the message names."""

    def __init__(self, server: Server[Any], data: bytes, session: str = "") -> None:
        """`session` names a session to a client that begins one."""
        super().__init__()
        self._server, self._data = server, data
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; without a session nothing outlives the exchange."""
        is_read = False

        async def receive_again() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": self._data, "more_body": False}

        request = Request(scope)

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": on_one_line(message.get("body", b""))}
            if message["type"] == "http.response.start" and self._session:
                message["headers"] = [*message["headers"], (SESSION.encode(), self._session.encode())]
            if message["type"] == "http.response.start" and message["status"] >= _CLIENT_ERROR:
                known = getattr(request.state, "problem", None)
                # Unless one of ours is known, the protocol's own code has refused it.
                request.state.problem = known or Problem(message["status"], "invalid-request", "no message of MCP")
            await send(message)

        manager = StreamableHTTPSessionManager(self._server, stateless=True, max_request_body_size=body.MAX_BODY_BYTES)
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


def _note_for_audit(request: Request, data: bytes) -> dict[str, Any]:
    """Record calls that steer runs in the audit trail, and return the message; who started a run stands in its
    journal."""
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
        told = {key: str(given[key])[:_MAX_CHARS] for key in ("run", "call", "verdict") if key in given}
        note(request, tool=params["name"], **told)
    else:
        leave_out(request)
    return message if isinstance(message, dict) else {}


class McpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`CADRE_MCP_<FIELD>`."""

    decide: Literal["off", "on"] = "off"
    """`on` gives approvers' keys the tool `cadre_decide`, by which the model that asked may approve its own call."""


class Tools:
    """Lists and calls tools, as far as their caller may use them."""

    def __init__(self, runs: RunService, settings: McpSettings) -> None:
        offers_decide = settings.decide == "on"
        self._agents = AgentTools(runs, offers_decide=offers_decide)
        self.tasks = Tasks(runs, self._agents)
        self.listening = Listening(runs, self._agents, self.tasks)
        self._runs = RunTools(runs, offers_decide=offers_decide)

    async def list(self, context: Context, asked: PaginatedRequestParams | None) -> ListToolsResult:
        """Return the tools that the caller may use, all on one page. Raise MCPError for a cursor: none is given out."""
        if asked is not None and asked.cursor is not None:
            raise MCPError(INVALID_PARAMS, f"cursor {asked.cursor!r} is unknown: ask without one")
        caller = caller_of(request_of(context))
        own: list[Tool] = [one.tool for name, one in tools.TOOLS.items() if self._runs.offers(caller, name)]
        agents = await self._agents.list(caller) if caller.may(tools.RIGHT) else []
        return ListToolsResult(tools=[*agents, *own])

    async def call(
        self, context: Context, asked: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult | dict[str, Any]:
        """Return the result of a call. Raise MCPError for an unknown tool."""
        try:
            if asked.name in tools.TOOLS:
                return await self._runs.call(context, asked)
            self._check(context, asked.name, tools.RIGHT)
            begun = await self._agents.call(context, asked)
            return created(begun) if isinstance(begun, RunSummary) else begun
        except FORESEEN as error:
            problem = as_problem(error)
            request_of(context).state.problem = problem
            if problem.code == "unknown-agent":
                _refuse_unknown(asked.name)
            return problem_result(problem)

    def _check(self, context: Context, tool: str, right: Right) -> None:
        if not caller_of(request_of(context)).may(right):
            raise Problem(403, "forbidden", f"tool {tool!r} needs the right `{right}`, which this key has not")


def _refuse_unknown(name: str) -> NoReturn:
    raise MCPError(INVALID_PARAMS, f"no tool or live agent is named {name!r}: tools/list has those there are")


def server_of(tools: Tools) -> Server[Any]:
    """Return the server that offers these tools."""
    server: Server[Any] = Server(
        "cadre",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=tools.list,
        on_subscriptions_listen=tools.listening.listen,
    )
    server.extensions[EXTENSION] = {}
    server.add_request_handler("tools/call", CallToolRequestParams, tools.call)
    server.add_request_handler("tasks/get", McpTaskParams, tools.tasks.get)
    server.add_request_handler("tasks/update", UpdateParams, tools.tasks.update)
    server.add_request_handler("tasks/cancel", McpTaskParams, tools.tasks.cancel)
    return server
