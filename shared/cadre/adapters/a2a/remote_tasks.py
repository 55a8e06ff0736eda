"""The tasks of one remote agent: begun and gone on with by messages, asked for, ended."""

from typing import Any

from cadre.adapters.a2a.client import RemoteAgentUnreachable, RemoteClient, RemoteRefused
from cadre.adapters.a2a.task import message_of, task_of
from cadre.adapters.remote_agent_tools import RemoteMessage
from cadre.tools.context import ToolContext
from cadre.tools.decorator import CallInterrupted


class A2ATasks:
    """The tasks of the agent behind a client (`RemoteTasks`). Methods raise RemoteRefused too."""

    def __init__(self, agent: str, client: RemoteClient) -> None:
        self._agent = agent
        self._client = client

    async def send(self, ctx: ToolContext, message: RemoteMessage) -> dict[str, Any]:
        """Sends a message. Raises CallInterrupted when nobody knows whether it has arrived."""
        parts = await message_of(ctx, message.text, message.data, message.images)
        said = {"messageId": message.id, **message.task, **parts}
        if ctx.deliveries > 1 and not await self._knows_messages():
            raise CallInterrupted(f"whoever sent a message to {self._agent} has died of it or been stopped")
        params = {"message": said, "configuration": {"returnImmediately": True, "historyLength": 0}}
        try:
            return task_of(await self._client.call("SendMessage", params, ctx.traceparent))
        except RemoteAgentUnreachable as error:
            if error.may_have_arrived and not await self._knows_messages():
                raise CallInterrupted(
                    f"{error}; its card does not say that a message can be sent again"
                ) from error
            return {"lost": str(error)}

    async def look(self, ctx: ToolContext, task: str, after: str) -> dict[str, Any]:
        """Asks for a task; the protocol has no cursor."""
        return await self._asked("GetTask", {"id": task, "historyLength": 0}, ctx)

    async def cancel(self, ctx: ToolContext, task: str) -> dict[str, Any]:
        """Ends a task."""
        return await self._asked("CancelTask", {"id": task}, ctx)

    async def _asked(self, method: str, params: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """The task that the method answers with, or why the agent cannot be reached."""
        try:
            return task_of(await self._client.call(method, params, ctx.traceparent))
        except RemoteAgentUnreachable as error:
            return {"lost": str(error)}

    async def _knows_messages(self) -> bool:
        try:
            return await self._client.knows_messages()
        except (RemoteAgentUnreachable, RemoteRefused):
            return False  # nobody says so
