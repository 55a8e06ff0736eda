"""The events of waits and of ends to come: what a run waits for besides calls and its model, and what time it has."""

from typing import Any

from cadre.journal.parts import JournalEvent
from cadre.protocol.messages import ErrorInfo


class SignalReceived(JournalEvent, frozen=True, tag="signal.received"):
    """A signal from outside. It is kept until a wait takes it, the oldest of its name first."""

    name: str
    payload: Any = None
    sender: str = ""


class WaitStarted(JournalEvent, frozen=True, tag="wait.started"):
    """The agent's kind waits until `until` (Unix seconds), or for a signal, whichever comes first."""

    name: str
    until: float | None = None
    """None: the clock does not end the wait."""
    signal: str | None = None
    """Name of the signal that ends it."""


class WaitFinished(JournalEvent, frozen=True, tag="wait.finished"):
    """The wait is over; what follows from it is told beside it."""

    name: str
    signal: str | None = None
    """Name of the signal that ended it; None: its time has come."""


class GraceStarted(JournalEvent, frozen=True, tag="grace.started"):
    """The run's deadline or budget is used up. Until `until` (Unix seconds) its kind leaves things in order, bound by
    neither; then the run ends."""

    error: ErrorInfo
    until: float


class CancelRequested(JournalEvent, frozen=True, tag="cancel.requested"):
    """Somebody wants the run to end: once it has made up for what it did, or `now`. Its open children are asked too."""

    reason: str = ""
    sender: str = ""
    now: bool = False
