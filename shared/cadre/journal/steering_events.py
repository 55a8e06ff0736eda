"""Events of what comes to a run from outside, and of what it waits for; part of `cadre.journal.events`."""

from typing import Any

from cadre.journal.parts import JournalEvent
from cadre.protocol.messages import ErrorInfo, MessageMode


class MessageReceived(JournalEvent, frozen=True, tag="message.received"):
    """What a person says to the run; its model reads it with the next call that begins."""

    text: str
    mode: MessageMode = "append"
    sender: str = ""


class EditApplied(JournalEvent, frozen=True, tag="edit.applied"):
    """A person has changed what the run plans to do; `base` was its version until then."""

    base: int
    operations: list[dict[str, Any]]
    sender: str = ""


class EditRefused(JournalEvent, frozen=True, tag="edit.refused"):
    """A person's change was not made: it was based on a version that is past, or cannot be made (`late`: any more)."""

    base: int
    version: int | None
    """The present one; None: there is nothing to edit."""
    reason: str
    sender: str = ""
    late: bool = False


class SignalReceived(JournalEvent, frozen=True, tag="signal.received"):
    """A signal from outside. It is kept until a wait takes it, the oldest of its name first."""

    name: str
    payload: Any = None
    sender: str = ""


class WaitBegun(JournalEvent, frozen=True, tag="wait.begun"):
    """The agent's kind waits until `until` (Unix seconds), or for a signal, whichever comes first."""

    name: str
    until: float | None = None
    """None: the clock does not end the wait."""
    signal: str | None = None
    """Name of the signal that ends it."""


class WaitEnded(JournalEvent, frozen=True, tag="wait.ended"):
    """The wait is over; what follows from it is told beside it."""

    name: str
    signal: str | None = None
    """Name of the signal that ended it; None: its time has come."""


class GraceBegun(JournalEvent, frozen=True, tag="grace.begun"):
    """The run's deadline or budget is used up. Until `until` (Unix seconds) its kind leaves things in order, bound by
    neither; then the run ends."""

    error: ErrorInfo
    until: float
