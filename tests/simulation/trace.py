"""The events of a seed, line by line: kept as tuples, written out only when somebody wants to read it."""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

Line = tuple[float, str, tuple[Any, ...]]


class Trace:
    """The story of one seed so far."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.lines: list[Line] = []
        self.counts: Counter[str] = Counter()

    def note(self, what: str, *details: Any) -> None:
        """`details` are strings and numbers: the same in every process that plays the seed."""
        self.counts[what] += 1
        self.lines.append((self._now(), what, details))

    def digest(self) -> str:
        """The same for two runs that took the same steps at the same times."""
        told = hashlib.blake2b(digest_size=16)
        for line in self.lines:
            told.update(repr(line).encode())
        return told.hexdigest()

    def text(self, last: int | None = None) -> str:
        lines = self.lines if last is None else self.lines[-last:]
        skipped = len(self.lines) - len(lines)
        head = [f"… {skipped} lines before"] if skipped else []
        return "\n".join([*head, *(_written(line) for line in lines)])


def _written(line: Line) -> str:
    time, what, details = line
    return f"{time:12.6f}  {what:<12} {' '.join(str(detail) for detail in details)}"
