"""One event of a run's stream, with typed access to what it says."""

from typing import Any, NamedTuple

import msgspec

from cadre.journal.parts import JournalEvent
from cadre.journal.unions import event_from
from cadre.options import explained
from cadre.protocol.deltas import Delta


@explained({"text": "match event.body: it is a Delta where type is 'delta'"})
class Event(NamedTuple):
    """One event of a run's stream: its type, and the JSON that goes with it (docs/http-api.md)."""

    type: str
    data: dict[str, Any]

    @property
    def run(self) -> str:
        """Id of the run that it is about: the one that is followed, or one below it."""
        return str(self.data.get("run", ""))

    @property
    def agent(self) -> str:
        """Name of that run's agent; "" of `end`."""
        return str(self.data.get("agent", ""))

    @property
    def seq(self) -> int | None:
        """Where to go on behind it (`after`); None of `delta` and `end`, which are not stored."""
        return self.data.get("seq") if "event" in self.data else None

    @property
    def at(self) -> float | None:
        """When it was journaled, in Unix seconds; None of `delta` and `end`."""
        return self.data.get("at")

    @property
    def body(self) -> JournalEvent | Delta | None:
        """What it says, as a class of `cadre.events`; None of `end`, and of what this version does not know."""
        try:
            if self.type == "delta":
                return msgspec.convert(self.data, Delta)
            return event_from(self.data.get("event"))
        except msgspec.ValidationError:
            return None
