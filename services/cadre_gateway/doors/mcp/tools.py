"""What the server offers and does: a tool for each agent, and a few for the runs that they begin."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import msgspec
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
)

from cadre import __version__
from cadre.api.runs import RunSummary
from cadre_gateway.access.principal import Right, caller_of
from cadre_gateway.doors.mcp import agent_tools, run_tools
from cadre_gateway.doors.mcp.agent_tools import AgentTools
from cadre_gateway.doors.mcp.call_context import Context, request_of
from cadre_gateway.doors.mcp.knows_tasks import EXTENSION
from cadre_gateway.doors.mcp.listening import Listening
from cadre_gateway.doors.mcp.outcome import problem_result
from cadre_gateway.doors.mcp.run_tools import RunTools
from cadre_gateway.doors.mcp.tasks import McpTaskParams, Tasks, UpdateParams, created
from cadre_gateway.doors.run_service import RunService
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem

_INSTRUCTIONS = (
    "Each agent is a tool: give it a task, and it answers when it is done, with progress meanwhile. A call that waits"
    " for a person has the person asked, or comes back with what is asked; cadre_get_run then waits for the answer."
    " Send `cadre.dev/idempotency-key` in `_meta` to find the same run again when a call is repeated."
)


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

    async def list(self, context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        """The tools that the caller may use."""
        caller = caller_of(request_of(context))
        own: list[Tool] = [
            one.tool for name, one in run_tools.TOOLS.items() if self._runs.offers(caller, name)
        ]
        agents = await self._agents.list(caller) if caller.may(agent_tools.RIGHT) else []
        return ListToolsResult(tools=[*agents, *own])

    async def call(
        self, context: Context, asked: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult | dict[str, Any]:
        """What came of a call. Raises MCPError for a tool that there is not."""
        try:
            if asked.name in run_tools.TOOLS:
                return await self._runs.call(context, asked)
            self._check(context, asked.name, agent_tools.RIGHT)
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
            raise Problem(
                403, "forbidden", f"tool {tool!r} needs the right `{right}`, which this key has not"
            )


def _refuse_unknown(name: str) -> NoReturn:
    raise MCPError(INVALID_PARAMS, f"no tool or live agent is named {name!r}: tools/list has those there are")


def server_of(tools: Tools) -> Server[Any]:
    """The server that offers these tools."""
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
