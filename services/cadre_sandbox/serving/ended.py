"""The runs of which this process has heard that they are over."""

from __future__ import annotations

from cadre.protocol.topology import parent_of
from cadre.recent import Recent

_REMEMBERED = 4096


class Ended:
    def __init__(self) -> None:
        self._runs = Recent[str, None](_REMEMBERED)

    def add(self, run: str) -> None:
        self._runs[run] = None

    def covers(self, run: str) -> bool:
        """Whether the run, or one above it, is among them."""
        if not self._runs:
            return False
        above: str | None = run
        while above is not None:
            if above in self._runs:
                return True
            above = parent_of(above)
        return False


def is_below(run: str, ended: str) -> bool:
    """Whether `run` is that run or one below it."""
    return run == ended or run.startswith(f"{ended}_")
