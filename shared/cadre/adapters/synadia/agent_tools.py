"""The tools of an agent that is somewhere on NATS: they prompt it, read its answers, and answer what it asks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cadre.errors import SetupError
from cadre.protocol.a2a import cancel_tool, get_tool, send_tool
from cadre.settings import read_settings
from cadre.spec.agent import AgentSpec
from cadre.spec.remote_agent import RemoteSpec
from cadre.tools.context import ToolContext
from cadre.tools.decorator import Tool, tool

if TYPE_CHECKING:
    from cadre.adapters.synadia.prompts import PromptedTasks

INSTALL = (
    "Synadia's agent protocol needs the package synadia-ai-agents, which is not installed:"
    " pip install 'cadre-agents[synadia]'"
)
_TIMEOUT_SECONDS = 120.0


def tools_of(spec: AgentSpec, folder: Path, *, to_serve: bool) -> list[Tool[..., Any]]:
    """The tools; the file of a key is relative to the folder. Raises SetupError for one that is not there, if they are
    to be served."""
    prompts = _prompts(spec, folder) if to_serve else None
    labels = {"synadia": spec.name}

    def served() -> PromptedTasks:
        assert prompts is not None, "the tools were made to be listed"
        return prompts

    @tool(name=send_tool(spec.name), idempotent=True, timeout=_TIMEOUT_SECONDS, labels=labels)
    async def send_message(
        message_id: str,
        ctx: ToolContext,
        text: str = "",
        data: list[Any] = [],  # noqa: B006 - read only
        images: list[str] = [],  # noqa: B006
        task: dict[str, str] = {},  # noqa: B006
    ) -> dict[str, Any]:
        """Prompts an agent, or answers what it has asked.

        Args:
            message_id: The same however often the message is sent.
            text: What it says.
            data: What it says as values; files among them are attached.
            images: References of images.
            task: The id `taskId` of the task that it is about; without it it begins one.
        """
        about = task.get("taskId", "")
        if about:
            return await served().answer(about, message_id, text, data)
        return await served().begin(ctx, message_id, text, data, images)

    @tool(name=get_tool(spec.name), read_only=True, timeout=_TIMEOUT_SECONDS, labels=labels)
    async def get_task(task_id: str, ctx: ToolContext, after: str = "") -> dict[str, Any]:
        """Reads what an agent has answered.

        Args:
            task_id: The task.
            after: What was told up to this cursor is not told again.
        """
        return await served().look(task_id, after, ctx.traceparent)

    @tool(name=cancel_tool(spec.name), idempotent=True, timeout=_TIMEOUT_SECONDS, labels=labels)
    async def cancel_task(task_id: str) -> dict[str, Any]:
        """Turns down what an agent asks; the protocol has no other word that ends its work.

        Args:
            task_id: The task.
        """
        return await served().cancel(task_id)

    return [send_message, get_task, cancel_task]


def _prompts(spec: AgentSpec, folder: Path) -> PromptedTasks:
    try:
        from cadre.adapters.synadia.link import Link
        from cadre.adapters.synadia.prompts import PromptedTasks
    except ModuleNotFoundError as error:
        raise SetupError(f"{spec.name}: {INSTALL}") from error

    section: RemoteSpec = getattr(spec, spec.kind)
    assert section.nats is not None
    link = Link(spec.name, section.nats, folder)
    link.check()
    return PromptedTasks(spec, section, link, read_settings().prefix)
