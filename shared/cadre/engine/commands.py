"""What a run may owe the world: a model call, a timer, a message, the end of a call that nobody awaits."""

import msgspec

from cadre.protocol.messages import Cancel, CodeCall, Report, Task, TimerFired, ToolCall, ToolResult


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model; the call belongs to the inbox record `cause`."""

    purpose: str
    step: int
    attempt: int
    cause: str


class SetTimer(msgspec.Struct, frozen=True):
    """Have `timer` delivered to this run at `due`; the wait began at `began` (Unix seconds)."""

    timer: TimerFired
    due: float
    began: float
    cause: str | None
    """The inbox record whose worker sees to the wait, which may be short; None for the run's own waits."""


class Revoke(msgspec.Struct, frozen=True):
    """Nobody awaits this tool call any more: it is not to be begun, and to be stopped if it has been."""

    result: ToolResult
    """What its executor finds in place of an empty effect."""


class Send(msgspec.Struct, frozen=True):
    """Send a message; `to` is the agent it goes to where the message does not say."""

    message: Task | ToolCall | CodeCall | Report | Cancel
    to: str | None = None
    with_summary: bool = False
    """Of a Report: its text tells how the work was done as well."""
    prompts: str = ""
    """Of a Report: `blob:` reference of the prompts that its text is rendered from; "" for those at hand."""


Command = CallModel | SetTimer | Send | Revoke
