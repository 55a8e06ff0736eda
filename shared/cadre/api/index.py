"""The index of runs as the HTTP API shows it. Times are Unix seconds."""

from __future__ import annotations

from typing import Literal

import msgspec


class IndexRebuild(msgspec.Struct, kw_only=True):
    """The last rebuild of an index from the journals."""

    state: Literal["running", "done", "failed"]
    started_at: float
    ended_at: float | None = None
    read: int = 0
    """Entries of the journals up to which it has come, counted with those that are gone."""
    of: int = 0
    error: str = ""
    """Why it failed."""


class IndexBuilding(msgspec.Struct, kw_only=True):
    """How far an index is that does not have all runs yet."""

    read: int
    """Messages of the streams up to which it has come, counted with those that are gone."""
    of: int


class IndexState(msgspec.Struct, kw_only=True):
    """What is in the index of a gateway."""

    runs: int
    """Root runs that are in it."""
    bytes: int
    positions: list[int]
    """Up to which sequences the journals of each shard are in it, then their files."""
    building: IndexBuilding | None = None
    """As long as the gateway reads what is older than itself: lists answer `503` meanwhile."""
    rebuild: IndexRebuild | None = None
    """The last one of this process."""
