"""The answer of a run while its model writes it, as far as it may be told without taking anything back."""

from __future__ import annotations

from cadre.protocol.deltas import OF_ANSWER, Delta
from cadre_gateway.doors.progress import Place


class LiveText:
    """What a caller was told of an answer. Pieces come of several attempts at it, may be missed and are stored nowhere;
    what was told cannot be taken back."""

    def __init__(self, place: Place) -> None:
        self._run = place.run
        self.told = ""
        self._attempt = (0, 0)
        """Step and attempt of the latest call of the model that has written of an answer."""
        self._text, self._pieces, self._is_whole = "", 0, True
        """Of that attempt; it is whole until a piece was missed."""

    def take(self, delta: Delta) -> None:
        """Takes a piece in, whatever it is of."""
        attempt = (delta.step, delta.attempt)
        if delta.run != self._run or delta.purpose != OF_ANSWER or attempt < self._attempt:
            return
        if attempt > self._attempt:
            self._attempt = attempt
            self._text, self._pieces, self._is_whole = "", 0, True
        if delta.seq > self._pieces:
            self._is_whole = self._is_whole and delta.seq == self._pieces + 1
            self._pieces = delta.seq
            self._text += delta.text

    def more(self, limit: int | None = None) -> str:
        """What there is to be told more, up to so many characters in all: of an attempt only once it has caught up
        with what was told of the one before, word for word."""
        return self._more(self._text[:limit]) if self._is_whole else ""

    def rest(self, answer: str) -> str | None:
        """What is left to be told of the answer; None if what was told is no beginning of it."""
        return self._more(answer) if answer.startswith(self.told) else None

    def _more(self, text: str) -> str:
        if not text.startswith(self.told):
            return ""
        more, self.told = text[len(self.told) :], text
        return more
