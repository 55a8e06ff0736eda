"""Numbers of a response's events: what follows from the journal has the same place whoever tells it, and what was told
live besides is in the number too, so a reader who comes back is told neither twice."""

from __future__ import annotations

from typing import NamedTuple

_STEP = 100_000
"""From one event of the journal to the next. Some clients read numbers of 32 bits: 21,474 events have room there."""

MAX_LIVE = _STEP - 1

_OPENING = 2
"""Events that open the message before its first characters."""

MAX_LIVE_CHARS = MAX_LIVE - _OPENING
"""Of an answer longer than that the rest comes with its end."""


class Told(NamedTuple):
    """How much of a response a reader has: its number grows with each event."""

    events: int = -1
    """The place of the last event that follows from the journal, from 0."""
    live: int = 0
    """What was told while the model wrote: one for each event that opened the message, and for each character."""

    @property
    def number(self) -> int:
        """As `sequence_number`."""
        return max(self.events, 0) * _STEP + self.live

    @property
    def chars(self) -> int:
        """How much of the answer's text was told live."""
        return max(self.live - _OPENING, 0)


def told_at(number: int) -> Told:
    """Return what a reader has seen that gives this number as its last one; a negative one stands for nothing."""
    return Told(*divmod(number, _STEP)) if number >= 0 else Told()
