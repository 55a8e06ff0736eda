"""The tools that speak to one remote agent: they send it messages, ask for its task, and end that."""

from pathlib import Path
from typing import Any

from cadre.adapters.a2a.client import RemoteClient, RemoteRefused, RemoteUnreachable
from cadre.adapters.a2a.message import message_of
from cadre.adapters.a2a.task import task_of
from cadre.protocol.a2a import cancel_tool, get_tool, send_tool
from cadre.spec.agent import AgentSpec
from cadre.spec.remote_agent import RemoteSpec
from cadre.tools.context import ToolContext
from cadre.tools.decorator import CallInterrupted, Tool, tool

_TIMEOUT_SECONDS = 300.0


def tools_of(spec: AgentSpec, folder: Path, *, to_serve: bool) -> list[Tool[..., Any]]:
    """The tools of an agent that stands for a remote one; paths of secrets are relative to the folder. Raises
    SetupError for a secret that is not there, if they are to be served."""
    section: RemoteSpec = getattr(spec, spec.kind)
    client = RemoteClient(spec.name, section, folder)
    if to_serve:
        client.check()
    labels = {"a2a": spec.name}

    @tool(name=send_tool(spec.name), idempotent=True, timeout=_TIMEOUT_SECONDS, labels=labels)
    async def send_message(
        message_id: str,
        ctx: ToolContext,
        text: str = "",
        data: list[Any] = [],  # noqa: B006 - read only
        images: list[str] = [],  # noqa: B006
        task: dict[str, str] = {},  # noqa: B006
    ) -> dict[str, Any]:
        """Sends a message to a remote agent, which begins a task or goes on with one.

        Args:
            message_id: The same however often the message is sent.
            text: What it says.
            data: What it says as values; files among them are sent as files.
            images: References of images.
            task: The ids `taskId` and `contextId` of the task that it is about; without them it begins one.
        """
        said = {"messageId": message_id, **task, **await message_of(ctx, text, data, images)}
        if ctx.deliveries > 1 and not await _knows_messages(client):
            raise CallInterrupted(f"whoever sent a message to {spec.name} has died of it or been stopped")
        params = {"message": said, "configuration": {"returnImmediately": True, "historyLength": 0}}
        try:
            return task_of(await client.call("SendMessage", params, ctx.traceparent))
        except RemoteUnreachable as error:
            if error.may_have_arrived and not await _knows_messages(client):
                raise CallInterrupted(
                    f"{error}; its card does not say that a message can be sent again"
                ) from error
            return {"lost": str(error)}

    @tool(name=get_tool(spec.name), read_only=True, timeout=_TIMEOUT_SECONDS, labels=labels)
    async def get_task(task_id: str, ctx: ToolContext) -> dict[str, Any]:
        """Asks a remote agent for a task.

        Args:
            task_id: The task, as the remote agent names it.
        """
        return await _asked(client, "GetTask", {"id": task_id, "historyLength": 0}, ctx)

    @tool(name=cancel_tool(spec.name), idempotent=True, timeout=_TIMEOUT_SECONDS, labels=labels)
    async def cancel_task(task_id: str, ctx: ToolContext) -> dict[str, Any]:
        """Ends a task of a remote agent.

        Args:
            task_id: The task, as the remote agent names it.
        """
        return await _asked(client, "CancelTask", {"id": task_id}, ctx)

    return [send_message, get_task, cancel_task]


async def _asked(
    client: RemoteClient, method: str, params: dict[str, Any], ctx: ToolContext
) -> dict[str, Any]:
    """The task that the method answers with, or why the agent cannot be reached."""
    try:
        return task_of(await client.call(method, params, ctx.traceparent))
    except RemoteUnreachable as error:
        return {"lost": str(error)}


async def _knows_messages(client: RemoteClient) -> bool:
    try:
        return await client.knows_messages()
    except (RemoteUnreachable, RemoteRefused):
        return False  # nobody says so
