"""The tools of an agent that is a program: they give it tasks, ask what has become of them, and end them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cadre.errors import SetupError
from cadre.protocol.a2a import cancel_tool, get_tool, send_tool
from cadre.spec.agent import AgentSpec
from cadre.spec.remote_agent import RemoteSpec
from cadre.tools.context import ToolContext
from cadre.tools.decorator import Tool, tool

if TYPE_CHECKING:
    from cadre.adapters.acp.member import Member

INSTALL = (
    "the Agent Client Protocol needs the package agent-client-protocol, which is not installed:"
    " pip install 'cadre-agents[acp]'"
)
_TIMEOUT_SECONDS = 120.0


def tools_of(spec: AgentSpec, folder: Path, *, to_serve: bool) -> list[Tool[..., Any]]:
    """The tools; paths in the agent's file are relative to the folder. Raises SetupError for what is not there, if they
    are to be served."""
    member = _member(spec, folder) if to_serve else None
    labels = {"acp": spec.name}

    def served() -> Member:
        assert member is not None, "the tools were made to be listed"
        return member

    @tool(name=send_tool(spec.name), idempotent=True, timeout=_TIMEOUT_SECONDS, labels=labels)
    async def send_message(
        message_id: str,
        ctx: ToolContext,
        text: str = "",
        data: list[Any] = [],  # noqa: B006 - read only
        images: list[str] = [],  # noqa: B006
        task: dict[str, str] = {},  # noqa: B006
    ) -> dict[str, Any]:
        """Gives a program a task, or the word that a task of its waits for.

        Args:
            message_id: The same however often the message is sent.
            text: What it says.
            data: What it says as values; files among them are given as files.
            images: References of images.
            task: The id `taskId` of the task that it is about; without it it begins one.
        """
        about = task.get("taskId", "")
        return await served().send(ctx, message_id, text, values=data, images=images, task=about)

    @tool(name=get_tool(spec.name), read_only=True, timeout=_TIMEOUT_SECONDS, labels=labels)
    async def get_task(task_id: str, after: str = "") -> dict[str, Any]:
        """Asks what has become of a task.

        Args:
            task_id: The task.
            after: What was told up to this cursor is not told again.
        """
        return served().look(task_id, after)

    @tool(name=cancel_tool(spec.name), idempotent=True, timeout=_TIMEOUT_SECONDS, labels=labels)
    async def cancel_task(task_id: str) -> dict[str, Any]:
        """Ends a task.

        Args:
            task_id: The task.
        """
        return await served().cancel(task_id)

    return [send_message, get_task, cancel_task]


def _member(spec: AgentSpec, folder: Path) -> Member:
    try:
        from cadre.adapters.acp.member import Member
    except ModuleNotFoundError as error:
        raise SetupError(f"{spec.name}: {INSTALL}") from error

    section: RemoteSpec = getattr(spec, spec.kind)
    assert section.program is not None
    member = Member(spec, section.program, folder)
    member.check()
    return member
