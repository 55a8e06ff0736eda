"""Whether a message came from whom it says it did: its subject names the sender, which permissions have proved.

A NATS user may publish to subjects with its own name in the sender's place only. That says who sent it, not that he
may send such a thing: an executor's result is an executor's to send, a person's decision is not.
"""

from __future__ import annotations

from cadre.deploy.nats_users import GATEWAY_SENDER, SANDBOX_SENDER
from cadre.protocol.messages import (
    CodeFinished,
    CodeYielded,
    Decision,
    Record,
    ReplyTo,
    Report,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
)
from cadre.protocol.topology import Topology

TIMER_SENDER = "timer"
"""Of what the server itself delivers at its time."""


def forged(record: Record, sender: str) -> str | None:
    """Why a record cannot be from this sender; None when it can."""
    whose: str | None = None
    match record:
        case ToolResult():
            whose = record.tool
        case Report():
            whose = record.agent
        case CodeYielded() | CodeFinished():
            whose = SANDBOX_SENDER
        case Decision():
            whose = GATEWAY_SENDER
        case TimerFired():
            whose = TIMER_SENDER
        case Task(reply_to=ReplyTo(agent=manager)):
            whose = manager
        case Task() if sender in (SANDBOX_SENDER, TIMER_SENDER):
            whose = "an agent or the gateway"
    if whose is None or whose == sender:
        return None
    return f"a {type(record).__name__} of {whose!r} was sent by {sender!r}: it is not taken for theirs"


def misplaced(message: Record | ToolCall, subject: str) -> str | None:
    """Why a message is not about what its subject says, by which alone it is delivered, fenced and removed."""
    tree, leaf = Topology.parse(subject)
    about = message.id if isinstance(message, ToolCall) else message.run
    if isinstance(message, Task) and message.agent != (agent := Topology.receiver(subject)):
        return f"a task for {message.agent!r} was sent to {agent!r}"
    if (message.tree, about) == (tree, leaf):
        return None
    return f"a {type(message).__name__} about {about!r} of tree {message.tree!r} was sent to {leaf!r} of {tree!r}"


def forged_call(call: ToolCall, sender: str) -> str | None:
    """Why a call cannot be from this sender; None when it can."""
    if call.agent == sender:
        return None
    return f"a call of agent {call.agent!r} was sent by {sender!r}: it is not made"
