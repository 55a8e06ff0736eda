"""Records of a tree as a whole: that it was removed, or brought from elsewhere."""

from __future__ import annotations

from cadre.protocol.messages import Message


class Erased(Message, frozen=True, tag="erased"):
    """A tree was removed. Its messages before this one are gone, and those behind it are late and ignored.
    Its id is `<tree>:erased`."""

    expired: bool = False
    """Whether the tree was removed because its time was over, and not on request."""


class Imported(Message, frozen=True, tag="imported"):
    """A tree was imported from a file: its journals follow this message. Its id is `<tree>:imported`."""


Fate = Erased | Imported
"""A record of the tree as a whole, which lies among its journals and outlives them."""
