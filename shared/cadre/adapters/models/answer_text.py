"""The text of an answer while it comes: joined, cut where it ends, and passed on without its thoughts."""

from collections.abc import Callable

from cadre.engine.answers.code_blocks import MADE_UP
from cadre.engine.answers.reasoning import blanked, for_people, has_tag, so_far
from cadre.ports import OnText

MIN_PAUSE_SECONDS = 0.05
"""Between two pieces of text that are passed on."""

EndOf = Callable[[str], int | None]
"""A function that returns the position where a text certainly ends, regardless of what follows; None: it may go on."""


class AnswerText:
    """Collects the pieces of a text, and passes on what is certain of it.

    Args:
        stop: sequences that end the text; they are no part of it. Within a thought they end nothing.
        end_of: finds an end that no sequence marks, as that of a block of code.
    """

    def __init__(
        self,
        stop: list[str],
        on_text: OnText,
        clock: Callable[[], float],
        end_of: EndOf | None = None,
    ) -> None:
        self.is_opened = False
        """The chat template opens a thought before the text begins: nothing is passed on until a tag has come."""
        self._stop = [word for word in stop if word]
        self._held = [*self._stop, *(f"\n{word}" for word in MADE_UP)] if end_of is not None else self._stop
        self._end_of = end_of
        self._on_text = on_text
        self._clock = clock
        self._text = ""
        """The joined part of the text; later pieces are in `_pieces`."""
        self._pieces: list[str] = []
        self._told = ""
        """The text that was passed on."""
        self._passed_at = float("-inf")
        self.is_over = False
        """More than blanks stood behind the end of the text when it was last passed on."""

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    @property
    def is_due(self) -> bool:
        """Return whether it is time to pass something on."""
        return self._clock() - self._passed_at >= MIN_PAUSE_SECONDS

    def mark(self) -> None:
        """Note that something of the answer was passed on."""
        self._passed_at = self._clock()

    async def pass_on(self) -> None:
        """Pass on what is surely no beginning of an end, and no half of a character."""
        self._join()
        if self.is_opened and not has_tag(self._text):
            return
        end = self._certain(self._joined_end())
        await self._pass(so_far(self._text[:end]))

    async def finish(self) -> str:
        """Pass on the rest, and return the whole text."""
        end = self._joined_end()
        await self._pass(for_people(self._text[:end]))
        return joined(self._text[:end])

    @property
    def is_empty(self) -> bool:
        """Return whether nothing of it has come."""
        return not self._text and not any(self._pieces)

    def behind(self, text: str) -> str:
        """Return what is new in a text that may repeat all that has come."""
        self._join()
        return text.removeprefix(self._text)

    def _join(self) -> None:
        if self._pieces:
            self._text = "".join([self._text, *self._pieces])
            self._pieces.clear()

    def _joined_end(self) -> int:
        """Join the text, and return where it ends."""
        self._join()
        said = blanked(self._text) if self._stop else ""
        places = [place for word in self._stop if (place := said.find(word)) >= 0]
        if self._end_of is not None and (end := self._end_of(self._text)) is not None:
            places.append(end)
        end = min(places, default=len(self._text))
        self.is_over = self._end_of is not None and bool(self._text[end:].strip())
        return end

    def _certain(self, end: int) -> int:
        if end < len(self._text):
            return end
        if "\ud800" <= self._text[-1:] <= "\udbff":
            return end - 1
        held = max(
            (
                size
                for word in self._held
                for size in range(1, min(len(word), end + 1))
                if self._text.endswith(word[:size])
            ),
            default=0,
        )
        return end - held

    async def _pass(self, text: str) -> None:
        if len(text) > len(self._told) and text.startswith(self._told):
            piece, self._told = text[len(self._told) :], text
            self.mark()
            await self._on_text(joined(piece))


def joined(text: str) -> str:
    """Return the text with the halves of a character that came in two pieces put together; a lone half is replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
