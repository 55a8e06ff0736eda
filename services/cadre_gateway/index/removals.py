"""What is to be removed and is not yet."""

import msgspec


class PendingErasure(msgspec.Struct, array_like=True):
    """An erased tree of which something may be left in the streams."""

    tree: str
    before: int
    """Sequence of the record that it was erased: everything of the tree below it goes."""
    due: float
    """Unix seconds from which this gateway may do it: until then it is left to the gateway that erased the tree."""
    expired: bool
    blobs: list[str] = []
    """The blobs that were known to be the tree's."""


class Removals(msgspec.Struct, kw_only=True):
    """The removals in hand, which are few at any time."""

    pending_erasures: dict[str, PendingErasure] = {}
    """Erased trees whose remains are still to be removed, in the order in which they were erased."""
    late_trees: dict[str, int] = {}
    """Trees of which something came late, with the sequence of the last of it."""
    postponed_blobs: dict[str, float] = {}
    """Blobs of removed trees that were too young to go, by the time from which they may."""
