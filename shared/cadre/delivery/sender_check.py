"""Check that a message matches its subject, and that its sender may send it.

The subject names the sender, and permissions have proved that name: a NATS user may publish only to subjects with its
own name in the sender's place. That does not say that it may send such a message: an executor's result is the
executor's to send, a person's decision is the gateway's.
"""

from cadre.errors import UnreadableMessage
from cadre.protocol.messages import (
    CodeFinished,
    CodeYielded,
    Decision,
    Edit,
    Record,
    ReplyTo,
    Report,
    Signal,
    Task,
    TimerFired,
    ToolCall,
    ToolResult,
    UserMessage,
)
from cadre.protocol.nats_users import GATEWAY_SENDER, SANDBOX_SENDER
from cadre.protocol.topology import Address

TIMER_SENDER = "timer"
"""The sender of what the server itself delivers when it is due."""


_AUTHORS: dict[type, str] = {
    CodeFinished: SANDBOX_SENDER,
    CodeYielded: SANDBOX_SENDER,
    Decision: GATEWAY_SENDER,
    Edit: GATEWAY_SENDER,
    Signal: GATEWAY_SENDER,
    TimerFired: TIMER_SENDER,
    UserMessage: GATEWAY_SENDER,
}
"""Who alone sends messages of a type, whatever they say."""


class Misaddressed(UnreadableMessage):
    """The message is not about what its subject says, or not its sender's to send."""


def check_sender(message: Record | ToolCall, address: Address) -> None:
    """Raises Misaddressed for a message on a wrong subject, or from a sender that may not send it."""
    if why := wrong_subject(message, address) or impersonation(message, address.sender):
        raise Misaddressed(why)


def impersonation(message: Record | ToolCall, sender: str) -> str | None:
    """Returns why the message cannot be from this sender; None when it can."""
    author = _AUTHORS.get(type(message))
    match message:
        case ToolCall():
            if message.agent == sender:
                return None
            return f"a call of agent {message.agent!r} was sent by {sender!r}: it is not made"
        case ToolResult():
            author = message.tool
        case Report():
            author = message.agent
        case Task() if message.spec and (message.reply_to is None or message.reply_to.agent != message.agent):
            return f"a part of the work of {message.agent!r} was sent by {sender!r}: only the agent itself gives such"
        case Task(reply_to=ReplyTo(agent=manager)):
            author = manager
        case Task() if sender in (SANDBOX_SENDER, TIMER_SENDER):
            author = "an agent or the gateway"
    if author is None or author == sender:
        return None
    return f"a {type(message).__name__} of {author!r} was sent by {sender!r}: it is not taken for theirs"


def wrong_subject(message: Record | ToolCall, address: Address) -> str | None:
    """Returns why the message does not belong on its subject, by which it is delivered, fenced and removed."""
    about = message.run
    if isinstance(message, ToolCall):
        about = message.id
        if message.tool != address.receiver:
            return f"a call of {message.tool!r} in the queue of {address.receiver!r}"
    if isinstance(message, Task) and message.agent != address.receiver:
        return f"a task for {message.agent!r} was sent to {address.receiver!r}"
    if (message.tree, about) == (address.tree, address.leaf):
        return None
    return (
        f"a {type(message).__name__} about {about!r} of tree {message.tree!r}"
        f" was sent to {address.leaf!r} of {address.tree!r}"
    )
