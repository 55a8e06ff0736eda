"""What was asked and who answered: one line a request, for tests and for the curious."""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from cadre_scripted_model.request import RequestView

KEPT = 10_000
"""Older lines are forgotten."""


class Line(msgspec.Struct, kw_only=True):
    n: int
    """Counts the requests from 1."""
    rule: str = ""
    """Name of the rule, `auto`, `context`, or `cassette <file>`."""
    model: str
    """The model that was asked for."""
    turn: int
    user: str
    """The last user text, cut."""
    stream: bool
    images: int
    tokens: int
    """Of the request, roughly."""
    status: int = 0
    """HTTP status of the answer; 0 before there is one."""
    outcome: str = "open"
    """`open`, `answered`, `cut` (as scripted, or by the upstream), `left` (by the client) or `failed`."""


class Journal:
    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=KEPT)
        self._count = 0
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self, view: RequestView) -> Line:
        self._count += 1
        self._open += 1
        self._idle.clear()
        line = Line(
            n=self._count,
            model=view.model,
            turn=view.turn,
            user=view.user[:120],
            stream=view.stream,
            images=view.images,
            tokens=view.tokens,
        )
        self._lines.append(line)
        return line

    def end(self, line: Line, outcome: str) -> None:
        line.outcome = outcome
        self._open -= 1
        if not self._open:
            self._idle.set()

    def lines(self) -> list[Line]:
        return list(self._lines)

    def clear(self) -> None:
        self._lines.clear()

    async def settled(self, seconds: float) -> bool:
        """Waits until no request is open; False when that took longer than `seconds`."""
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True
