"""A journal's entries: what one arrival made true, told so that it can be decided again and nothing can be changed."""

from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from cadre.journal.events import CommonEvent
from cadre.journal.parts import JournalEvent, any_of
from cadre.journal.run import Run
from cadre.spec.kinds import declared_kinds

EVENTS: tuple[type[JournalEvent], ...] = (
    *get_args(CommonEvent),
    *dict.fromkeys(event for kind in declared_kinds().values() for event in kind.events),
)
"""Every event that a journal may hold, those of the agent kinds too."""

if TYPE_CHECKING:
    AnyEvent = JournalEvent
else:
    AnyEvent = any_of(EVENTS)


class ArrivalRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an entry accounts for, as far as its events do not copy it."""

    type: str
    """Name of the arrival's class."""
    fields: dict[str, Any] = {}
    """Its fields that no event of the entry has under the same name."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="entry"):
    """One append to a journal: everything that one arrival made true."""

    v: Literal[1] = 1
    kind: str = ""
    """Name of the kind that decides the run; "" while the run has not begun."""
    kind_version: int = 1
    tree: str
    run: str
    agent: str
    parent: str | None = None
    n: int
    """Position in the journal, from 1."""
    cause: str
    """Id of the record that this entry accounts for, or of the model's answer."""
    at: float
    arrived: ArrivalRecord
    events: list[AnyEvent]
    snapshot: Run | None = None
    """The state before this entry's events; then `prev` is empty."""
    prev: list[int] = []
    """Stream sequences of the entries since the last snapshot, oldest first."""
    hash: str = ""
    """BLAKE2b of the previous entry's hash and of this entry as stored, without `prev` and `hash` (see
    `cadre.delivery.hash_chain`); "" until the entry is sealed."""
