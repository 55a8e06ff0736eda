"""The entries of a journal: what one arrival made true, with all that is needed to decide it again."""

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cadre.journal.back_pointers import unpacked
from cadre.protocol.messages import SCHEMA_VERSION
from cadre.protocol.topology import parent_of, tree_of
from cadre.spec.kinds import DEFAULT

if TYPE_CHECKING:
    from cadre.journal.parts import JournalEvent

    AnyEvent = JournalEvent  # at run time, `unions.close` sets it


class ArrivalRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an entry accounts for, as far as its events do not copy it."""

    type: str
    """Name of the arrival's class."""
    fields: dict[str, Any] = {}
    """Its fields that no event of the entry has under the same name."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="entry"):
    """One append to a journal: everything that one arrival made true. A field that has its default is not stored."""

    v: Literal[1] = msgspec.field(default_factory=lambda: SCHEMA_VERSION)
    """Always stored: what a later version leaves out would be taken for this one."""
    run: str
    kind: str = DEFAULT
    """Name of the kind that decides the run; "" while the run has not begun."""
    kind_version: int = 1
    agent: str
    n: int
    """Position in the journal, from 1."""
    cause: str = ""
    """Id of the record that this entry accounts for, or of the model call whose answer it has."""
    at: float
    arrived: ArrivalRecord | None = None
    """None where the first event copies all of it."""
    events: "list[AnyEvent]"
    prev: str = ""
    """Stream sequences of earlier entries, as `BackPointers.packed` returns them."""
    hash: str = ""
    """BLAKE2b of the previous entry's hash and of this entry as stored, without `prev` and `hash` (see
    `cadre.delivery.hash_chain`); "" until the entry is sealed."""

    @property
    def tree(self) -> str:
        """The id of the root run."""
        return tree_of(self.run)

    @property
    def parent(self) -> str | None:
        """The run that delegated this one; None for a root."""
        return parent_of(self.run)

    @property
    def earlier(self) -> list[int]:
        """Stream sequences of the earlier entries that this one names, in ascending order."""
        return unpacked(self.prev)
