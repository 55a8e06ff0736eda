"""The bases of what a kind of agent writes down (events, its state, its part of a step), and the call of a model."""

from typing import Any, ClassVar

import msgspec

from cadre.protocol.usage import Usage


class JournalEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """A fact of a run, in the past tense. Its tag is the event's name in the HTTP API.

    No event's class has another one below it. So what looks at every entry asks `type(event) is`: `isinstance` of a
    struct takes the interpreter five times as long as of a plain class where the answer is no.
    """

    quoted: ClassVar[tuple[str, ...]] = ()
    """Fields that quote the agent's specification for people: in other words the same would be decided."""

    def used(self) -> Usage | None:
        """What the run has used by it, where that is the affair of the run's kind."""
        return None


class RequestedCall(msgspec.Struct, frozen=True):
    """A call as the model wrote it; `arguments` is JSON text or, parsed from text, already an object."""

    name: str
    arguments: str | dict[str, Any]


class KindState(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What one kind of agent keeps of a run beside the common state; its tag is the kind's name."""


class KindStep(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What one kind of agent keeps of an action step beside its calls; its tag is the kind's name."""
