"""Show runs as tasks of MCP, in the extension for long calls, and stream their changes to clients that listen.

A task has the id of its run, so its state is in the journals and any gateway can answer. A stream begins with what was
agreed on and the present state of each task. None of it is kept: a client whose stream broke listens again at any
gateway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal, cast

import anyio
from mcp import MCPError
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    Notification,
    RequestParams,
    ServerNotification,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from cadre.api.runs import RunSummary
from cadre.errors import NewerSchema
from cadre.ports import Stored
from cadre.protocol.access import Right
from cadre_gateway.access.principal import caller_of
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.mcp.client import Context, check_knows_tasks, question, request_of, ruling
from cadre_gateway.doors.mcp.tools import AgentTools, outcome, problem_result
from cadre_gateway.doors.progress import Place, Progress
from cadre_gateway.doors.rulings import questions_for
from cadre_gateway.doors.sender import RunService
from cadre_gateway.requests.problems import FORESEEN, Problem, answer_deadline, as_problem
from cadre_gateway.streaming.follow import Follower, Notice

_POLL_MS = 1_000
_NAMED = ("tasks/get", "tasks/update", "tasks/cancel")
"""Methods that name their task in a header, for proxies that route by it."""
_NOT_FOUND, _SERVER_ERROR = 404, 500

_MOST_TASKS = 100
"""Of one stream."""
_IDLE_SECONDS = 15.0
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_TOOLS_CHANGED = "notifications/tools/list_changed"
_TASK = "notifications/tasks"


class McpTaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateParams(McpTaskParams):
    """The parameters of `tasks/update`: what people have said to the requests of the task, by key."""

    input_responses: dict[str, dict[str, Any]]


def created(run: RunSummary) -> dict[str, Any]:
    """Return the result of a call that goes on as a task."""
    return {"resultType": "task", **_head(run, "working", run.started_at)}


class Tasks:
    """Shows, answers and cancels tasks. Every method raises MCPError."""

    def __init__(self, runs: RunService, agents: AgentTools) -> None:
        self._runs, self._agents = runs, agents
        self._answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)

    async def get(self, context: Context, asked: McpTaskParams) -> dict[str, Any]:
        """Return the task as it is now: with its answer once there is one, with what it asks people while it waits."""
        with _refusals(context):
            run = await self.find(context, asked.task_id, "read")
            return await self.detail(context, run, await self._answers.so_far(Place(run.id)))

    async def detail(self, context: Context, run: RunSummary, progress: Progress) -> dict[str, Any]:
        """Return the task of the run that has come so far, with those of its questions that the caller reaches."""
        asked = await questions_for(self._runs.reach, caller_of(request_of(context)), progress)
        needs_data = await self._agents.schema_of(run.agent) is not None
        at = progress.at or run.started_at
        if progress.end is not None and progress.end.state == "cancelled":
            return _head(run, "cancelled", at)
        if progress.end is not None:
            return {**_head(run, "completed", at), "result": _result(progress, needs_data=needs_data)}
        waits = {call: question(held) for call, held in asked.items()}
        if waits:
            return {**_head(run, "input_required", at), "inputRequests": waits}
        return _head(run, "working", at)

    async def update(self, context: Context, asked: UpdateParams) -> dict[str, Any]:
        """Take what people say to what waits; what does not wait (any more) is passed over."""
        with _refusals(context):
            run = await self.find(context, asked.task_id, "decide")
            progress = await self._answers.so_far(Place(run.id))
            caller = caller_of(request_of(context))
            waiting = await questions_for(self._runs.reach, caller, progress)
            for call, said in asked.input_responses.items():
                held = waiting.get(call)
                if held is not None and (decision := ruling(held, said, context)) is not None:
                    await self._runs.decisions.decide(call, decision, None, caller.titles)
        return {}

    async def cancel(self, context: Context, asked: McpTaskParams) -> dict[str, Any]:
        """Ask the run to end; one that has ended is left alone."""
        with _refusals(context):
            run = await self.find(context, asked.task_id, "act")
            async with answer_deadline():
                await self._runs.run_end.cancel(run.id, "cancelled as a task")
        return {}

    async def find(self, context: Context, run: str, right: Right) -> RunSummary:
        """Return the run of the task, if the caller may do this with it. Raises MCPError, a 403 or 404 problem."""
        check_knows_tasks(context)
        if context.method in _NAMED and request_of(context).headers.get("mcp-name") != run:
            raise MCPError(HEADER_MISMATCH, "the header Mcp-Name must be the taskId")
        caller = caller_of(request_of(context))
        if not caller.may(right):
            raise Problem(403, "forbidden", f"{context.method} needs the right `{right}`")
        async with answer_deadline():
            await self._runs.reach.check(caller, "run", run)
            return await self._runs.lookup.find(run)


@contextlib.contextmanager
def _refusals(context: Context) -> Iterator[None]:
    """Return what is refused in the block is counted as what it is, and raised as MCPError."""
    try:
        yield
    except FORESEEN as error:
        problem = request_of(context).state.problem = as_problem(error)
        raise _refused(problem) from error


def _head(
    run: RunSummary,
    status: Literal["working", "input_required", "completed", "cancelled"],
    at: float,
) -> dict[str, Any]:
    return {
        "taskId": run.id,
        "status": status,
        "createdAt": _time(run.asked_at),
        "lastUpdatedAt": _time(at),
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _result(progress: Progress, *, needs_data: bool) -> dict[str, Any]:
    """Return the answer that the call would have had without a task."""
    try:
        found = outcome(progress, needs_data=needs_data)
    except Problem as problem:
        found = problem_result(problem)
    return found.model_dump(by_alias=True, mode="json", exclude_none=True)


def _refused(problem: Problem) -> MCPError:
    if problem.status == _NOT_FOUND:
        return MCPError(INVALID_PARAMS, "there is no such task (any more)", {"code": problem.code})
    code = -32603 if problem.status >= _SERVER_ERROR else INVALID_PARAMS
    return MCPError(code, problem.detail, {"code": problem.code})


class Listening:
    """Serves `subscriptions/listen`."""

    def __init__(self, runs: RunService, agents: AgentTools, tasks: Tasks) -> None:
        self._runs, self._agents, self._tasks = runs, agents, tasks
        self._answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)

    async def listen(self, context: Context, asked: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Tell what was asked for until all tasks of a stream that is about nothing else are over, the gateway stops,
        or the client hangs up. Raises MCPError."""
        if context.request_id is None:
            raise MCPError(INVALID_REQUEST, "subscriptions/listen is a request: give it an id")
        wanted = _task_ids(asked)
        if wanted:
            check_knows_tasks(context)
        tasks = await self._agreed(context, wanted)
        hears_tools = bool(asked.notifications.tools_list_changed)
        stream = _ListenStream(context)
        agreed: dict[str, Any] = {"toolsListChanged": True} if hears_tools else {}
        agreed |= {"taskIds": [run.id for run in tasks]} if tasks else {}
        await stream.tell(_ACKNOWLEDGED, {"notifications": agreed})
        async with anyio.create_task_group() as group:
            if hears_tools:
                group.start_soon(self._tell_tools, stream, context)
            for run in tasks:
                group.start_soon(self._tell_task, stream, context, run)
        return SubscriptionsListenResult(_meta=stream.meta)

    async def _agreed(self, context: Context, wanted: Iterable[str]) -> list[RunSummary]:
        """Return the tasks that there are and that the caller may see."""
        found = []
        for task in wanted:
            try:
                found.append(await self._tasks.find(context, task, "read"))
            except FORESEEN as error:
                if as_problem(error).status not in (403, 404):
                    raise
        return found

    async def _tell_task(self, stream: _ListenStream, context: Context, run: RunSummary) -> None:
        """Send the task as it is and as it becomes, until it is over, was erased or goes on in a newer version:
        `tasks/get` reports that."""
        with contextlib.suppress(Problem, NewerSchema):
            await self._tell_changes(stream, context, run)

    async def _tell_changes(self, stream: _ListenStream, context: Context, run: RunSummary) -> None:
        progress = await self._answers.so_far(Place(run.id))
        await stream.tell(_TASK, await self._tasks.detail(context, run, progress))
        lookup, feeds, told = self._runs.lookup, self._runs.feeds, _state(progress)
        follower = Follower(lookup, feeds, run.id, progress.seq, idle_seconds=_IDLE_SECONDS, all_entries=True)
        with feeds.follow(run.id, follower.feed):
            async with contextlib.aclosing(cast(Any, follower.items())) as items:
                async for item in items:
                    if item is Notice.DRAINING or progress.end is not None:
                        return
                    if isinstance(item, Stored):
                        progress.take(item)
                    if told != (told := _state(progress)):
                        await stream.tell(_TASK, await self._tasks.detail(context, run, progress))

    async def _tell_tools(self, stream: _ListenStream, context: Context) -> None:
        caller = caller_of(request_of(context))
        known = await self._agents.list(caller)
        while not self._runs.feeds.draining:
            with anyio.move_on_after(_IDLE_SECONDS):
                await self._runs.registry.changed()
            now = await self._agents.list(caller)
            if now != known:
                known = now
                await stream.tell(_TOOLS_CHANGED, {})


class _ListenStream:
    """The response of one `subscriptions/listen`, whose notifications name it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification; returns once the client has taken what was sent before."""
        told = Notification[dict[str, Any], str](method=method, params={**params, "_meta": self.meta})
        await self._context.session.send_notification(
            cast(ServerNotification, told), related_request_id=self._context.request_id
        )


def _state(progress: Progress) -> tuple[bool, frozenset[str]]:
    """Return the changes that a client is notified of."""
    return progress.end is not None, frozenset(progress.held)


def _task_ids(asked: SubscriptionsListenRequestParams) -> list[str]:
    told = (asked.notifications.model_extra or {}).get("taskIds") or []
    if not isinstance(told, list) or not all(isinstance(one, str) for one in told):
        raise MCPError(INVALID_PARAMS, "notifications.taskIds is a list of ids of tasks")
    if len(told) > _MOST_TASKS:
        raise MCPError(INVALID_PARAMS, f"one stream reports {_MOST_TASKS} tasks at most: open another one")
    return list(dict.fromkeys(told))
