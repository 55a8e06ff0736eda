"""The index of runs as the HTTP API shows it. Times are Unix seconds."""

from __future__ import annotations

from typing import Literal

import msgspec


class IndexRebuild(msgspec.Struct, kw_only=True):
    """The last rebuild of an index from the journals."""

    state: Literal["running", "done", "failed"]
    began_at: float
    ended_at: float | None = None
    read: int = 0
    """Entries of the journals up to which it has come, counted with those that are gone."""
    of: int = 0
    error: str = ""
    """Why it failed."""


class IndexState(msgspec.Struct, kw_only=True):
    """What is in the index of a gateway."""

    runs: int
    """Root runs."""
    bytes: int
    positions: list[int]
    """Sequence of the last entry of each shard that is in it."""
    writer: str = ""
    """The other gateway that writes the index where several share one: it makes it anew."""
    rebuild: IndexRebuild | None = None
    """The last one of this process."""
