"""Whether an index has all that the journals held when this process began to read them, and how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from cadre.errors import RunIndexBuilding


class IndexProgress(NamedTuple):
    """How far the journals are in an index that lacks some of them."""

    read: int
    of: int
    """Sequences of all shards, with those of what is no entry or is gone."""

    def __str__(self) -> str:
        return f"{self.read / self.of if self.of else 1.0:.0%} of {self.of:,} messages"


class Completeness:
    """A new index is whole: it lacks nothing before its reading begins."""

    def __init__(self) -> None:
        self.whole = asyncio.Event()
        """Until it is set, a question raises RunIndexBuilding."""
        self.whole.set()
        self._ends: Sequence[int] = ()

    def begin(self, ends: Sequence[int]) -> None:
        """Takes note that streams with these last sequences are being read into it."""
        self._ends = ends
        self.whole.clear()

    def progress(self, positions: Sequence[int]) -> IndexProgress | None:
        """How far an index with the journals up to there is; None once it is whole."""
        if self.whole.is_set():
            return None
        return IndexProgress(sum(map(min, zip(positions, self._ends, strict=False))), sum(self._ends))

    def check(self, positions: Sequence[int]) -> None:
        """Raises RunIndexBuilding unless it is whole."""
        if (progress := self.progress(positions)) is not None:
            raise RunIndexBuilding(
                f"this gateway reads the journals still: its index has {progress}; runs begin, go on and are shown by"
                " their ids meanwhile; try again (GET /v1/index tells how far it is)"
            )
