"""How much memory request bodies take, those of all requests together."""

from __future__ import annotations

from collections.abc import Iterable

from cadre_gateway.requests.problems import Problem

FREE_BYTES = 64 * 1024
"""So much of each body always has room."""


class BodyMemory:
    """The memory that large bodies share; one of them always has room, be it larger than all."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0

    def share(self) -> BodyShare:
        """What one body takes, nothing at first."""
        return BodyShare(self)

    def change(self, more: int, own: int) -> None:
        """Adds bytes, below 0 takes some away, for a body that has its `own` already. Raises a 503 problem."""
        total = self._held_bytes + more
        if more > 0 and total > self._limit_bytes and own + more > FREE_BYTES and self._held_bytes > own:
            raise Problem(
                503,
                "busy",
                f"other requests bring so much that this one has no room ({self._limit_bytes} bytes,"
                " CADRE_HTTP_BODY_BYTES): try again",
            )
        self._held_bytes = total


class BodyShare:
    """The bytes of one body; it gives them back when nobody has it any more."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.bytes = 0

    def add(self, more: int) -> None:
        """Takes more bytes. Raises a 503 problem."""
        self._memory.change(more, self.bytes)
        self.bytes += more

    def __del__(self) -> None:
        self._memory.change(-self.bytes, self.bytes)


class HeldBody(bytes):
    """A body that has its share of the memory for as long as it lives."""

    share: BodyShare

    @classmethod
    def of(cls, chunks: Iterable[bytes], share: BodyShare) -> HeldBody:
        """The body of these chunks."""
        body = cls(b"".join(chunks))
        body.share = share
        return body
