"""The extension for tasks, as a client of the protocol needs it: the package has none of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result


class ServersTask(Result):
    """A task of the server, with its answer once there is one."""

    result_type: Literal["task"] | Literal["complete"] = "complete"
    task_id: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    status_message: str | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class BegunTask(Result):
    """What a call is answered with that goes on as a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    poll_interval_ms: float | None = None


class TaskRequestParams(RequestParams):
    """The parameters of requests about a task."""

    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(Request[TaskRequestParams, str]):
    """A request about a task."""

    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Declares that calls may be answered with tasks."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """The one result that it adds; whoever calls a tool goes on with it."""
        return (ResultClaim(result_type="task", model=BegunTask, resolve=_not_here),)


async def _not_here(begun: BegunTask, context: ClaimContext) -> CallToolResult:
    raise NotImplementedError(f"task {begun.task_id} of {context.tool_name} is awaited by its caller")
