"""The tools by which agents of other makes are worked with, whatever protocol they speak: one sends them messages, one
asks for a task, one ends it."""

from __future__ import annotations

from typing import Any, Protocol

from cadre.protocol.a2a import cancel_tool, get_tool, send_tool
from cadre.tools.context import ToolContext
from cadre.tools.decorator import Tool, tool


class RemoteTasks(Protocol):
    """The tasks at one agent. Every method returns the fields of a `RemoteTask`, or why the agent is `lost`, and raises
    CallInterrupted when nobody can know what has become of the task."""

    async def send(
        self,
        ctx: ToolContext,
        message: str,
        text: str,
        data: list[Any],
        images: list[str],
        task: dict[str, str],
    ) -> dict[str, Any]:
        """Begins a task with the message, or goes on with the one that `task` names by its ids."""
        ...

    async def look(self, ctx: ToolContext, task: str, after: str) -> dict[str, Any]:
        """What has become of a task, and what was done of it behind the cursor."""
        ...

    async def cancel(self, ctx: ToolContext, task: str) -> dict[str, Any]:
        """Ends a task, as far as the protocol has a word for that."""
        ...


def make_tools(
    agent: str, protocol: str, tasks: RemoteTasks | None, timeout_seconds: float
) -> list[Tool[..., Any]]:
    """The tools of the agent; without `tasks` they can be listed, not called."""
    labels = {protocol: agent}

    def served() -> RemoteTasks:
        assert tasks is not None, "the tools were made to be listed"
        return tasks

    @tool(name=send_tool(agent), idempotent=True, timeout=timeout_seconds, labels=labels)
    async def send_message(
        message_id: str,
        ctx: ToolContext,
        text: str = "",
        data: list[Any] = [],  # noqa: B006 - read only
        images: list[str] = [],  # noqa: B006
        task: dict[str, str] = {},  # noqa: B006
    ) -> dict[str, Any]:
        """Sends a message to an agent of another make, which begins a task or goes on with one.

        Args:
            message_id: The same however often the message is sent.
            text: What it says.
            data: What it says as values; files among them are sent as files.
            images: References of images.
            task: The ids `taskId` and `contextId` of the task that it is about; without them it begins one.
        """
        return await served().send(ctx, message_id, text, data, images, task)

    @tool(name=get_tool(agent), read_only=True, timeout=timeout_seconds, labels=labels)
    async def get_task(task_id: str, ctx: ToolContext, after: str = "") -> dict[str, Any]:
        """Asks an agent of another make what has become of a task.

        Args:
            task_id: The task, as that agent names it.
            after: What was told up to this cursor is not told again.
        """
        return await served().look(ctx, task_id, after)

    @tool(name=cancel_tool(agent), idempotent=True, timeout=timeout_seconds, labels=labels)
    async def cancel_task(task_id: str, ctx: ToolContext) -> dict[str, Any]:
        """Ends a task of an agent of another make.

        Args:
            task_id: The task, as that agent names it.
        """
        return await served().cancel(ctx, task_id)

    return [send_message, get_task, cancel_task]
