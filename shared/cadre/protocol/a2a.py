"""Define what an agent that stands for a remote one and the executor that speaks A2A for it send each other."""

from typing import Any

import msgspec

from cadre.protocol.codes import ErrorCode
from cadre.protocol.usage import Usage

MESSAGES_ONCE = "https://cadre.dev/a2a/messages-once/v1"
"""The extension of A2A by which a card says that a message sent again finds its task, and begins no other."""


def send_tool(agent: str) -> str:
    """The tool that sends a message to the remote agent."""
    return f"{agent}_send_message"


def get_tool(agent: str) -> str:
    """The tool that asks for its task."""
    return f"{agent}_get_task"


def cancel_tool(agent: str) -> str:
    """The tool that ends its task."""
    return f"{agent}_cancel_task"


def remote_tools(agent: str) -> list[str]:
    """All tools of the remote agent that this one stands for."""
    return [send_tool(agent), get_tool(agent), cancel_tool(agent)]


class RemoteTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task of a remote agent as one call has found it: what each of the tools returns."""

    state: str = ""
    """A2A's word without its prefix, in lower case: `working`, `input_required` …; "" when `lost` says why not."""
    task: str = ""
    context: str = ""
    status_id: str = ""
    """Distinguishes this status from others of the same state: its time, else the id of its message, else ""."""
    answer: Any = None
    """The task's result; files are files of Cadre."""
    said: str = ""
    """The text of its status."""
    asked: list[Any] = []
    """The data that came with that text."""
    lost: str = ""
    """The reason why the remote agent could not be asked now; asking again does no harm."""
    error: ErrorCode | None = None
    """The reason why the task has failed, if the remote agent says more than that it has."""
    activity: list[dict[str, Any]] = []
    """The activity since `after`: messages, thoughts, calls of its tools, plans."""
    cursor: str = ""
    """The cursor that the next question gives as `after`; "" without reports of activity."""
    usage: Usage | None = None
    """The task's usage until now, as far as the remote agent reports it."""
