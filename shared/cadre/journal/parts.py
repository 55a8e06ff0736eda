"""The bases of what a kind of agent writes down (events, its state, its part of a step), and the call of a model."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from cadre.protocol.messages import ErrorInfo, Message
from cadre.protocol.usage import Usage


class SandboxTurn(NamedTuple):
    """The work that a sandbox has done since the run last gave it something."""

    number: int
    instance: str
    tier: str = ""


class PieceOfWork(NamedTuple):
    """A piece of work of a run that has a beginning and an end: a block of code, a step of a plan, a remote tool."""

    id: str
    """Names it within its run."""
    name: str = ""
    """Its name, in a word or two; "" leaves the name as it was."""
    state: Literal["queued", "open", "ok", "failed", "dropped"] = "open"
    text: str = ""
    """The work to do; "" leaves that as it was."""
    result: Any = None
    error: ErrorInfo | None = None
    began_at: float = 0.0
    """Unix seconds; 0 where the time of the entry holds."""
    ended_at: float = 0.0
    """By the clock of the process that did it, if that reports it; 0 otherwise."""
    key: str = ""
    """The part of its span's id, once it has ended, that distinguishes it from other spans of the step: it must never
    change. "" where the trace has no span of it."""
    encloses: bool = False
    """Its span is there from its beginning, with an id that follows from its `id` and `key` alone; the calls that begin
    until it ends are its own, and hang below it. A run has one such piece at a time."""
    turn: SandboxTurn | None = None
    tool: str = ""
    """Name of the part that does it, as metrics count it once it is over; "" where they do not."""
    seconds: float = 0.0
    """The time that it took."""
    replaces: bool = False
    """All work of the run that is queued is dropped by it."""

    @property
    def is_over(self) -> bool:
        """Return whether it has ended."""
        return self.state not in ("queued", "open")


class Mark(NamedTuple):
    """A span without a length in the trace."""

    name: str
    key: str
    """The part of its id that distinguishes it from other spans of the step: it must never change."""
    step: int
    text: str = ""
    """Exported where content is."""


class Description(NamedTuple):
    """The meaning of a kind's own event for readers that know nothing of the kind."""

    doing: str | None = None
    """The activity of the run from now on; "" for nothing in particular, None where the event does not change that."""
    lines: Sequence[str] = ()
    work: Sequence[PieceOfWork] = ()
    marks: Sequence[Mark] = ()
    used: Usage | None = None
    """Usage that it adds to the run."""
    images: Sequence[str] = ()
    """References of the images that it brings for the model to see."""


class JournalEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """A fact of a run, in the past tense. Its tag is the event's name in the HTTP API.

    No event's class has another one below it. So what looks at every entry asks `type(event) is`: `isinstance` of a
    struct takes the interpreter five times as long as of a plain class where the answer is no.
    """

    quoted: ClassVar[tuple[str, ...]] = ()
    """Fields that quote the agent's specification for people: in other words the same would be decided."""

    copies: ClassVar[type[Message] | None] = None
    """The record of an agent's inbox, known to one kind alone, that it copies field by field."""

    def describe(self) -> Description:
        """Return what it means, where it is one of a kind's own."""
        return Description()


class RequestedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call as the model wrote it; `arguments` is JSON text or, parsed from text, already an object."""

    name: str
    arguments: str | dict[str, Any]
    error: ErrorInfo | None = None
    """The reason why it is not made, regardless of its content: it came broken, or its values may not be passed on."""


class KindState(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The state that one kind of agent keeps of a run in addition to the common state; its tag is the kind's name."""

    tokens: int = 0
    """Estimated tokens of what the model reads of it besides the steps: an upper bound, kept by the kind's fold."""
    not_undone: list[str] = []
    """The effects that the run has had, or may have had, and has not made up for, in words for a person. A run that
    ends badly names it. The kind's fold keeps it."""


class KindStep(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The part of an action step that one kind of agent keeps in addition to its calls; its tag is the kind's name."""

    def lines(self) -> Sequence[str]:
        """Return what it means to a person, in lines."""
        return ()
