"""Makes the pieces of models' answers whole.

Pieces (`delta`) are sent while an answer is written and are stored nowhere: who comes late, is slow or loses the
connection misses some. The whole answer follows as `model.answered`, so that what is missing can be told before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cadre.client.event import Event


@dataclass
class _OpenAnswer:
    """An answer that is being written."""

    call: tuple[object, ...]
    text: str = ""
    """The text so far."""
    pieces: int = 0
    is_whole: bool = True
    """Whether no piece was missed so far; else the rest waits for the end of the answer."""


class AnswerTexts:
    """Passes events on such that the deltas of each answer are its whole text, in order and without repetition.

    An attempt that came to nothing has no answer: its pieces stay, and those of the next have a higher `attempt`.
    """

    def __init__(self) -> None:
        self._open: dict[str, _OpenAnswer] = {}
        """By run."""

    def complete(self, event: Event) -> Iterator[Event]:
        """Yields the event unless it is a piece out of its order; before `model.answered` a delta with what is
        missing."""
        if event.type == "delta":
            if self._is_next(event.data):
                yield event
            return
        if event.type == "model.called":
            self._open[event.run] = _OpenAnswer(_call_of(event.data["event"]))
        elif event.type == "model.answered":
            yield from self._rest(event)
        yield event

    def _is_next(self, delta: dict[str, Any]) -> bool:
        answer = self._open.get(delta["run"])
        if answer is None or answer.call != _call_of(delta):
            return False
        if not answer.is_whole or delta["seq"] <= answer.pieces:
            return False
        if delta["seq"] > answer.pieces + 1:
            answer.is_whole = False
            return False
        answer.pieces += 1
        answer.text += delta["text"]
        return True

    def _rest(self, event: Event) -> Iterator[Event]:
        answered = event.data["event"]
        answer = self._open.pop(event.run, None)
        if answer is None or answer.call != _call_of(answered):
            answer = _OpenAnswer(_call_of(answered))
        content = str(answered.get("content") or "")
        if content.startswith(answer.text) and len(content) > len(answer.text):
            step, attempt, purpose = answer.call
            delta = {
                "run": event.run,
                "agent": event.agent,
                "step": step,
                "attempt": attempt,
                "purpose": purpose,
                "text": content[len(answer.text) :],
                "seq": answer.pieces + 1,
            }
            yield Event("delta", delta)


def _call_of(said: dict[str, Any]) -> tuple[object, ...]:
    """The model call of its run that a delta or an event is about."""
    return said.get("step"), said.get("attempt"), said.get("purpose", "")
