"""Remembers which runs have ended, so that nothing is begun for them any more."""

from cadre.protocol.topology import parent_of
from cadre.recent import Recent

MAX_RUNS = 4096


class EndedRuns:
    """The runs and calls of which this process heard last that they have ended."""

    def __init__(self) -> None:
        self._ended = Recent[str, None](MAX_RUNS)

    def add(self, run: str) -> None:
        """Remember the end of a run or call, and of all below it."""
        self._ended[run] = None

    def covers(self, run: str) -> bool:
        """Return whether the run or call, or one above it, has ended."""
        above: str | None = run if self._ended else None
        while above is not None:
            if above in self._ended:
                return True
            above = parent_of(above)
        return False
