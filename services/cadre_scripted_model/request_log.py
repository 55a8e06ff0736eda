"""A log of requests and of what answered them: one line each, for tests and for the curious."""

import asyncio
from collections import deque

import msgspec

from cadre_scripted_model.request import RequestView

MAX_LINES = 10_000
"""Number of lines that are kept; older ones are forgotten."""


class LogLine(msgspec.Struct, kw_only=True):
    """One request, and what answered it."""

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
    """Tokens of the request, roughly."""
    status: int = 0
    """HTTP status of the answer; 0 before there is one."""
    outcome: str = "open"
    """`open`, `answered`, `cut` (as scripted, or by the upstream), `left` (by the client) or `failed`."""


class RequestLog:
    """The log of one process; it also knows how many requests are open."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self, view: RequestView) -> LogLine:
        """Add the line of a request that is open now."""
        self._count += 1
        self._open += 1
        self._idle.clear()
        line = LogLine(
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

    def end(self, line: LogLine, outcome: str) -> None:
        """End an open request."""
        line.outcome = outcome
        self._open -= 1
        if not self._open:
            self._idle.set()

    def lines(self) -> list[LogLine]:
        """Return all lines, the oldest first."""
        return list(self._lines)

    def clear(self) -> None:
        """Forget all lines; open requests stay open."""
        self._lines.clear()

    async def settled(self, seconds: float) -> bool:
        """Wait until no request is open; False when that took longer than `seconds`."""
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            return False
        return True
