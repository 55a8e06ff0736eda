"""Take the messages of a queue, and serve, refuse, postpone or leave each to another worker; check that a message
matches its subject, and that its sender may send it."""

import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from cadre.delivery.codec import newer_schema
from cadre.delivery.quarantine import Quarantine
from cadre.delivery.retry import retry
from cadre.errors import NewerKind, NewerSchema, TerminalError, UnreadableMessage
from cadre.ports import Blobs, Clock, Delivery
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

T = TypeVar("T")

log = logging.getLogger("cadre.newer")

MAX_REDELIVERIES = 10
"""Deliveries after which no replica seems able to read the message; about 63 seconds with the pauses below."""

_LONGEST_PAUSE_SECONDS = 8.0


class Poison(TerminalError):
    """The message ends the processes that handle it."""


class Job(Generic[T]):
    """A delivery in hand. Its message is decoded when it is first asked for, and once."""

    def __init__(self, delivery: Delivery, read: Callable[[], Awaitable[T]]) -> None:
        self.delivery = delivery
        self.address = delivery.address
        self._read = read
        self._message: T | None = None

    async def message(self) -> T:
        """Raise UnreadableMessage (NewerSchema among them), TooLarge, BlobMissing."""
        if self._message is None:
            self._message = await self._read()
        return self._message


Read = Callable[[bytes, Blobs], Awaitable[T]]
"""Decodes a message, with what of it lies in the blob store."""

Serve = Callable[[Job[T]], Awaitable[bool]]
"""Serves the message. Returns True when it may be acked, False when another worker has it now.

Raises NewerSchema (the message is left to a newer replica), any other TerminalError (it is refused) and
RetryableError (it is delivered again).
"""

Refuse = Callable[[Job[T], TerminalError], Awaitable[None]]
"""A function that reports to the waiting side why the message will have no outcome. The error is Poison for a message
that ends its workers."""


class Worker(Generic[T]):
    """Handles the deliveries of one process's queues that carry one type of message."""

    def __init__(
        self,
        read: Read[T],
        refuse: Refuse[T],
        blobs: Blobs,
        quarantine: Quarantine,
        clock: Clock,
    ) -> None:
        self._read = read
        self._refuse = refuse
        self._blobs = blobs
        self._clock = clock
        self._quarantine = quarantine

    async def handle(self, delivery: Delivery, serve: Serve[T]) -> None:
        """Serve and ack the message, or refuse it and make it a dead letter.

        Raises RetryableError: the message is to be delivered again.
        """
        if delivery.deliveries > 1 and (newer := newer_schema(delivery.data)) is not None:
            await defer_to_newer(delivery, newer)  # before its deliveries make it a suspect
            return
        job = Job(delivery, lambda: retry(lambda: self._read(delivery.data, self._blobs), self._clock.sleep))
        why = await self._quarantine.attempt(delivery, lambda: self._settle(job, serve))
        if why is not None and await self._give_up(job, Poison(why)):
            await self._quarantine.forget(delivery)

    async def _settle(self, job: Job[T], serve: Serve[T]) -> None:
        try:
            if await serve(job):
                await job.delivery.ack()
        except NewerSchema as newer:
            await defer_to_newer(job.delivery, newer)
        except TerminalError as error:
            await self._give_up(job, error)

    async def _give_up(self, job: Job[T], error: TerminalError) -> bool:
        """Return whether the message is a dead letter now: a newer replica may have to refuse it."""
        try:
            await self._refuse(job, error)
        except NewerSchema as newer:
            await defer_to_newer(job.delivery, newer)
            return False
        await job.delivery.term(str(error))
        return True


async def defer_to_newer(delivery: Delivery, error: NewerSchema) -> None:
    """Hand the delivery back after a pause, or gives it up after MAX_REDELIVERIES."""
    if delivery.deliveries <= MAX_REDELIVERIES:
        pause = min(2.0 ** (delivery.deliveries - 1), _LONGEST_PAUSE_SECONDS)
        log.warning("%s is left to a newer replica for %g s: %s", delivery.subject, pause, error)
        await delivery.nak(pause)
        return
    why = (
        f"agent kind version {error.found}, this service knows {error.known or 'none'}"
        if isinstance(error, NewerKind)
        else f"schema {error.found}, this one reads up to {error.known}"
    )
    reason = f"written by a newer Cadre ({why}): upgrade this service, then `cadre dead retry`"
    log.error("dead letter %s: %s", delivery.subject, reason)
    await delivery.term(reason)


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
"""The only permitted sender for each type of message, regardless of its content."""


class Misaddressed(UnreadableMessage):
    """The message is not about what its subject says, or not its sender's to send."""


def check_sender(message: Record | ToolCall, address: Address) -> None:
    """Raise Misaddressed for a message on a wrong subject, or from a sender that may not send it."""
    if why := wrong_subject(message, address) or impersonation(message, address.sender):
        raise Misaddressed(why)


def impersonation(message: Record | ToolCall, sender: str) -> str | None:
    """Return why the message cannot be from this sender; None when it can."""
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
    """Return why the message does not belong on its subject, by which it is delivered, fenced and removed."""
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
