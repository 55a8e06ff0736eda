"""The runs of which this process has heard that they are over."""

from __future__ import annotations

from collections import OrderedDict

from cadre.protocol.topology import parent_of

_REMEMBERED = 4096


class Ended:
    def __init__(self) -> None:
        self._runs: OrderedDict[str, None] = OrderedDict()

    def add(self, run: str) -> None:
        self._runs[run] = None
        self._runs.move_to_end(run)
        while len(self._runs) > _REMEMBERED:
            self._runs.popitem(last=False)

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
