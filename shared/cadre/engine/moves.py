"""What a kind of agent can decide. `cadre.engine.carry_out` turns moves into events, under the rules common to all."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cadre.journal.events import RequestedCall
from cadre.journal.parts import JournalEvent, KindState
from cadre.protocol.messages import ErrorInfo, RunState


class Ask(NamedTuple):
    """Ask the model. Beyond the run's last step the kind's `last_word` takes the place of this move."""

    purpose: str
    """One of `Kind.purposes`."""
    step: int
    """Number of the step that the answer belongs to, from 1."""
    attempt: int = 1
    """Counts up where the kind itself asks once more for the same answer."""


class RunPart(NamedTuple):
    """A part of the run's own work, for a run of the same agent; `Kind.part` says what holds in it."""

    task: str
    inputs: dict[str, Any]


class RefusedCall(RequestedCall, frozen=True):
    """A call that the kind itself refuses, for a reason that its model or its code reads."""

    error: ErrorInfo


class Call(NamedTuple):
    """Make calls in the step in work, parts of the run's own work among them: each is checked, and made, held for
    approval or refused on its own."""

    requests: Sequence[RequestedCall | RunPart]
    approved: bool = False
    """A person has agreed to them already: no policy holds them."""
    may_repeat: bool = False
    """They are the kind's own, and may come to the same result as often as they do."""


class Drop(NamedTuple):
    """Give up all open calls of the step in work: whoever works at them is told to stop."""

    reason: str


class Answer(NamedTuple):
    """Propose the run's answer: it counts once it fits the output schema and has passed the agent's checks."""

    value: Any
    arguments: dict[str, Any] | None = None
    """Of `final_answer`, where the model has called it; its call is the step's first then."""


class BeginStep(NamedTuple):
    """Begin a step that no model call begins: calls and questions behind this move are made in it."""

    step: int
    """Its number, from 1."""
    name: str = ""
    """What the kind calls it."""
    attempt: int = 1
    own: KindState | None = None
    """The kind's state as of now: what else follows from this very arrival is decided in it."""


class EndStep(NamedTuple):
    """End the step in work."""

    error: ErrorInfo | None = None


PARTIAL_RESULT: Any = object()
"""As the output of a Stop: what the run has found until then, this very arrival included."""


class Stop(NamedTuple):
    """End the run now, without checks of its output."""

    state: RunState
    output: Any = None
    error: ErrorInfo | None = None


class Wait(NamedTuple):
    """Wait until a time, for a signal from outside, or for either, for seconds or months; nothing is held meanwhile.

    `Kind.arrived` is told a TimerFired of this name when the time has come, a Signalled when the signal has.
    A signal that came before the wait ends it at once.
    """

    name: str
    until: float | None = None
    """Unix seconds; None: the clock does not end it."""
    signal: str | None = None
    """Name of the signal that ends it; of several waits for one signal the oldest takes it."""


class Signalled(NamedTuple):
    """A wait is over because of a signal: what `Kind.arrived` is told then."""

    wait: str
    """Name of the wait."""
    signal: str
    payload: Any
    sender: str


class Hold(NamedTuple):
    """Put a question to a person, in the step in work; it is settled like a call, with the person's word."""

    name: str
    question: str
    expires_at: float | None = None
    """Unix seconds; None: the question waits for ever."""
    arguments: dict[str, Any] = {}  # noqa: RUF012 - a default of a tuple, which nobody changes
    """What the question is about. `calls` in it (name and arguments of each) may be edited by the decision."""


class Note(NamedTuple):
    """Journal an event of the kind's own."""

    event: JournalEvent


Move = Ask | Call | Drop | Answer | BeginStep | EndStep | Stop | Wait | Hold | Note
Moves = Sequence[Move]
