"""Files and conversations that clients keep at the gateway beyond single runs: definitions, each by its id."""

from typing import Any

import msgspec

FILES, CONVERSATIONS = "file", "conversation"
"""The kinds of the definitions in which they are kept."""


class KeptFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that was uploaded. Times are Unix seconds."""

    id: str
    at: float
    owner: str = ""
    """The person, or the key of no person, whose file it is; "" where the caller is bound to neither."""
    name: str
    media_type: str
    size: int
    """In bytes."""
    purpose: str
    ref: str
    """`blob:` reference of the content, which stays at least until `expires_at`."""
    expires_at: float | None = None
    """From then on the file is gone, and a janitor removes its content and this record."""

    def is_gone(self, now: float) -> bool:
        """Return whether the file was deleted or has expired."""
        return self.expires_at is not None and self.expires_at <= now


class ConversationPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a conversation: a run, with all that was said in it, or one item that the client added."""

    run: str = ""
    at: float = 0.0
    """The time at which the run was about to begin; it may never have begun."""
    item: dict[str, Any] = {}


class KeptConversation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation: what was said stands in the journals of its runs, and this says which runs they are."""

    id: str
    at: float
    owner: str = ""
    """See `KeptFile.owner`."""
    metadata: dict[str, str] = {}
    parts: list[ConversationPart] = []
    """In the order in which they were said."""
    removed: list[str] = []
    """The ids of the items that the client has deleted."""
    changed: bool = False
    """True if an item was deleted since the last run began: the next one cannot go on with the memory of that run."""
