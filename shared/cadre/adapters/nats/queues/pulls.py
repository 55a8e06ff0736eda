"""The pulls that a queue has open at the server: how many messages each is still owed, and when it was heard of."""

import time


class Pulls:
    """Open pulls by their tokens, oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, _Pull] = {}
        self._count = 0
        self._unheard_since: float | None = None

    @property
    def promised(self) -> int:
        """Messages that the server may still send."""
        return sum(pull.left for pull in self._open.values())

    def open(self, messages: int) -> str:
        """Notes a new pull; returns its token."""
        self._count += 1
        token = str(self._count)
        self._open[token] = _Pull(messages)
        if self._unheard_since is None:
            self._unheard_since = time.monotonic()
        return token

    def pay(self) -> None:
        """A message has arrived. The server serves pulls in the order they came: the oldest one pays for it."""
        for token, pull in self._open.items():
            pull.heard = time.monotonic()
            pull.left -= 1
            if pull.left <= 0:
                del self._open[token]
            break
        self._note_heard()

    def hear(self, token: str) -> None:
        """A heartbeat of the pull has arrived."""
        if (pull := self._open.get(token)) is not None:
            pull.heard = time.monotonic()
            self._note_heard()

    def close(self, token: str) -> bool:
        """Forgets a pull that has ended; False when it was not open."""
        is_open = self._open.pop(token, None) is not None
        self._note_heard()
        return is_open

    def silent_for(self) -> float:
        """Return the seconds since any of them was heard of, or the first was opened; 0 when none is waited for."""
        return time.monotonic() - self._unheard_since if self._unheard_since is not None else 0.0

    def _note_heard(self) -> None:
        self._unheard_since = time.monotonic() if self._open else None

    def close_silent(self, seconds: float) -> bool:
        """Forgets the pulls that were not heard of for so long; returns whether there were any."""
        since = time.monotonic() - seconds
        silent = [token for token, pull in self._open.items() if pull.heard < since]
        for token in silent:
            del self._open[token]
        return bool(silent)

    def clear(self) -> None:
        """Forgets them all."""
        self._open.clear()
        self._unheard_since = None


class _Pull:
    def __init__(self, left: int) -> None:
        self.left = left
        self.heard = time.monotonic()
