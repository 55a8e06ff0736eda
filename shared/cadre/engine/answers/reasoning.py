"""The reasoning that models write in tags: what it weighs and rejects is not to be done, wherever it stands.

A tag in a text of sound JSON or code is quoted there, and part of the answer.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from cadre.engine.answers.lenient_json import BEGINS_VALUE, LenientError, Reader

_NAMES = r"(?:\w+:)?(?P<name>think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratchpad)"
TAG = re.compile(
    rf"[<◁]\|?\s*(?P<ends>/\s*|end_(?:of_)?)?(?:start_|begin_of_)?{_NAMES}(?:\s[^<>]*)?(?<!/)\|?[>▷]"
    r"|\[\s*(?P<ends_too>/\s*)?THINK(?:ING)?\s*\](?!\()",
    re.IGNORECASE,
)
"""The beginning or the end of reasoning: `<think>`, `</Thinking>`, `<reasoning effort="low">`, `[THINK]`."""

_BLANK = " \t\r\n\ufeff\u200b"


class Quotes(NamedTuple):
    """What may quote tags without being reasoning."""

    begins: re.Pattern[str]
    end: Callable[[str, int], int | None]
    """Where the one that begins at a place of a text ends; None: it is not sound, its tags are tags."""


def _end_of_json(text: str, at: int) -> int | None:
    reader = Reader(text, at)
    try:
        reader.value()
    except (LenientError, ValueError, RecursionError):
        return None
    return reader.at


JSON = Quotes(BEGINS_VALUE, _end_of_json)

_MOST_BROKEN = 100
"""Beginnings of quotes that come to nothing, after which there are none: a search for each end costs time."""


def without_reasoning(text: str, quotes: Quotes = JSON) -> str:
    """The text without its reasoning: what stands between tags, behind one that is not closed, and before an end
    without a beginning, as where a template has opened the tag before the answer began."""
    parts, at = [], 0
    for begin, end in _reasoning(text, quotes):
        parts.append(text[at:begin])
        at = end
    return "".join([*parts, text[at:]])


def behind_reasoning(text: str) -> str:
    """A text for people without the reasoning that it begins with; tags that it speaks of further on stay."""
    at = 0
    for begin, end in _reasoning(text, JSON):
        if text[at:begin].strip(_BLANK):
            break
        at = end
    return text[at:]


def _reasoning(text: str, quotes: Quotes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    open_tags: Counter[str] = Counter()
    at = begin = broken = 0
    tag = TAG.search(text)
    while tag is not None:
        if tag.start() < at:
            tag = TAG.search(text, at)
            continue
        if not open_tags and broken < _MOST_BROKEN:
            quote = quotes.begins.search(text, at, tag.start())
            if quote is not None:
                end = quotes.end(text, quote.start())
                broken += end is None
                at = end or quote.start() + 1
                continue
        at, name = tag.end(), (tag["name"] or "think").casefold()
        if not (tag["ends"] or tag["ends_too"]):
            begin = begin if open_tags else tag.start()
            open_tags[name] += 1
        elif not open_tags:
            found = [(0, at)]
        elif name in open_tags:
            open_tags[name] -= 1
            open_tags += Counter()  # without those that are closed
            if not open_tags:
                found.append((begin, at))
    return [*found, (begin, len(text))] if open_tags else found
