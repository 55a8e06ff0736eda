"""The entries of a journal: what one arrival made true, with all that is needed to decide it again. Each names
earlier entries of its run, so that a reader who has the last one finds all."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cadre.protocol.messages import stored_version
from cadre.protocol.topology import parent_of, tree_of
from cadre.spec.kinds import DEFAULT

if TYPE_CHECKING:
    from cadre.journal.parts import JournalEvent

    AnyEvent = JournalEvent


class ArrivalRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arrival that an entry accounts for, as far as its events do not copy it."""

    type: str
    """Name of the arrival's class."""
    fields: dict[str, Any] = {}
    """Its fields that no event of the entry has under the same name."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="entry"):
    """One append to a journal: everything that one arrival made true. A field that has its default is not stored."""

    v: Literal[1] = msgspec.field(default_factory=stored_version)
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


FAN = 32
"""Entries of a block, and blocks of a block of blocks."""

_BITS = 7
_MORE = 1 << _BITS


class BackPointers:
    """The sequences that the next entry of a run names."""

    def __init__(self) -> None:
        self._levels: list[list[int]] = []

    def note(self, seq: int) -> None:
        """Take in the sequence of the run's next entry: larger than those before."""
        for level in self._levels:
            level.append(seq)
            if len(level) < FAN:
                return
            level.clear()
        self._levels.append([seq])

    def sequences(self) -> list[int]:
        """Return them in ascending order."""
        return [seq for level in reversed(self._levels) for seq in level]

    def packed(self) -> str:
        """Return them as an entry stores them."""
        data, before = bytearray(), 0
        for seq in self.sequences():
            left, before = seq - before, seq
            while left >= _MORE:
                data.append(left % _MORE | _MORE)
                left >>= _BITS
            data.append(left)
        return urlsafe_b64encode(data).rstrip(b"=").decode()


def positions(n: int) -> list[int]:
    """Return the positions of the entries that the entry at position `n` of its run names, in the order of their
    sequences."""
    count, block, levels = n - 1, 1, []
    while block <= count:
        full = count - count % (block * FAN)
        levels.append(range(full + block, count + 1, block))
        block *= FAN
    return [position for level in reversed(levels) for position in level]


def unpacked(text: str) -> list[int]:
    """Return the sequences that `BackPointers.packed` has stored, in ascending order. Raises ValueError for a text
    that was cut off."""
    found: list[int] = []
    before = shift = number = 0
    for byte in urlsafe_b64decode(text + "=" * (-len(text) % 4)):
        number |= (byte % _MORE) << shift
        shift += _BITS
        if byte < _MORE:
            before += number
            found.append(before)
            shift = number = 0
    if shift:
        raise ValueError("back-pointers end within a number")
    return found
