"""The pulls that a queue has open at the server: how many messages each is still owed, and when it was heard of."""

import time


class Pulls:
    """Open pulls by their tokens, oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, _Pull] = {}
        self._count = 0

    @property
    def promised(self) -> int:
        """Messages that the server may still send."""
        return sum(pull.left for pull in self._open.values())

    def open(self, messages: int) -> str:
        """Notes a new pull; returns its token."""
        self._count += 1
        token = str(self._count)
        self._open[token] = _Pull(messages)
        return token

    def pay(self) -> None:
        """A message has arrived. The server serves pulls in the order they came: the oldest one pays for it."""
        for token, pull in self._open.items():
            pull.heard = time.monotonic()
            pull.left -= 1
            if pull.left <= 0:
                del self._open[token]
            return

    def hear(self, token: str) -> None:
        """A heartbeat of the pull has arrived."""
        if (pull := self._open.get(token)) is not None:
            pull.heard = time.monotonic()

    def close(self, token: str) -> bool:
        """Forgets a pull that has ended; False when it was not open."""
        return self._open.pop(token, None) is not None

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


class _Pull:
    def __init__(self, left: int) -> None:
        self.left = left
        self.heard = time.monotonic()
