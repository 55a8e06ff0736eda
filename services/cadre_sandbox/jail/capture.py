"""What the code prints: beginning and end of it, in bounded memory however much it is."""

import io
from collections import deque


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of the text and a note between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return joined(text[:half], text[len(text) - half :], len(text) - 2 * half)


def joined(head: str, tail: str, missing: int) -> str:
    """Beginning and end of a text, with a note of how many characters are missing between them."""
    return f"{head}\n… [{missing} characters left out of the middle] …\n{tail}"


class CapturedOutput(io.TextIOBase):
    """Standard output and error of the jailed interpreter, bounded."""

    def __init__(self) -> None:
        self.start(0)

    def start(self, limit: int) -> None:
        """Forget what was printed, and keep at most `limit` characters from now on."""
        self._half = limit // 2
        self._head: list[str] = []
        self._head_size = 0
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._dropped = 0

    def writable(self) -> bool:
        """Whether it can be written to, as `print` asks."""
        return True

    def write(self, text: str, /) -> int:
        """Keep the text, or what fits of it; returns its characters."""
        text = str(text)
        fits = text[: self._half - self._head_size]
        if fits:
            self._head.append(fits)
            self._head_size += len(fits)
        if len(fits) < len(text):
            self._to_tail(text[len(fits) :])
        return len(text)

    def _to_tail(self, text: str) -> None:
        if len(text) > self._half:
            self._dropped += len(text) - self._half
            text = text[len(text) - self._half :]
        self._tail.append(text)
        self._tail_size += len(text)
        while self._tail_size > 2 * self._half:
            # Twice what is kept, so that not every small print moves the rest.
            first = self._tail.popleft()
            self._tail_size -= len(first)
            self._dropped += len(first)

    def text(self) -> str:
        """What was printed, with a note in the middle when some of it was left out."""
        tail = "".join(self._tail)
        missing = self._dropped + max(0, len(tail) - self._half)
        tail = tail[max(0, len(tail) - self._half) :]
        head = "".join(self._head)
        return joined(head, tail, missing) if missing else head + tail
