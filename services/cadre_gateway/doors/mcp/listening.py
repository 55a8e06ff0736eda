"""Streams of notifications that a client of 2026 asks for: of its tasks, and of changes to the tools.

A stream begins with what is agreed on and the present state of each task. Nothing is kept of it: a client whose
stream broke, here or with its gateway, listens again at any other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, cast

import anyio
from mcp import MCPError
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    Notification,
    ServerNotification,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from cadre.api.runs import RunSummary
from cadre.errors import NewerSchema
from cadre.ports import Stored
from cadre_gateway.access.principal import caller_of
from cadre_gateway.doors.following import Answers
from cadre_gateway.doors.mcp.agent_tools import AgentTools
from cadre_gateway.doors.mcp.call_context import Context, request_of
from cadre_gateway.doors.mcp.knows_tasks import check_knows_tasks
from cadre_gateway.doors.mcp.tasks import Tasks
from cadre_gateway.doors.progress import Place, Progress
from cadre_gateway.doors.run_service import RunService
from cadre_gateway.requests.problems import FORESEEN, Problem, as_problem
from cadre_gateway.streaming.follow import Follower, Notice

_MOST_TASKS = 100
"""Of one stream."""
_IDLE_SECONDS = 15.0
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_TOOLS_CHANGED = "notifications/tools/list_changed"
_TASK = "notifications/tasks"


class Listening:
    """Serves `subscriptions/listen`."""

    def __init__(self, runs: RunService, agents: AgentTools, tasks: Tasks) -> None:
        self._runs, self._agents, self._tasks = runs, agents, tasks
        self._answers = Answers(runs.lookup, runs.feeds, runs.watch_deltas)

    async def listen(
        self, context: Context, asked: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Tells what was asked for until all tasks of a stream that is about nothing else are over, the gateway stops,
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
        """The tasks that there are and that the caller may see."""
        found = []
        for task in wanted:
            try:
                found.append(await self._tasks.find(context, task, "read"))
            except FORESEEN as error:
                if as_problem(error).status not in (403, 404):
                    raise
        return found

    async def _tell_task(self, stream: _ListenStream, context: Context, run: RunSummary) -> None:
        """Tells the task as it is and as it becomes, until it is over, or was erased or goes on in a newer version: of
        that `tasks/get` tells."""
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
        """Sends a notification; returns once the client has taken what was sent before."""
        told = Notification[dict[str, Any], str](method=method, params={**params, "_meta": self.meta})
        await self._context.session.send_notification(
            cast(ServerNotification, told), related_request_id=self._context.request_id
        )


def _state(progress: Progress) -> tuple[bool, frozenset[str]]:
    """What a client is told changes of."""
    return progress.end is not None, frozenset(progress.held)


def _task_ids(asked: SubscriptionsListenRequestParams) -> list[str]:
    told = (asked.notifications.model_extra or {}).get("taskIds") or []
    if not isinstance(told, list) or not all(isinstance(one, str) for one in told):
        raise MCPError(INVALID_PARAMS, "notifications.taskIds is a list of ids of tasks")
    if len(told) > _MOST_TASKS:
        raise MCPError(INVALID_PARAMS, f"one stream tells of {_MOST_TASKS} tasks at most: open another one")
    return list(dict.fromkeys(told))
