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
    r"|\[\s*(?P<ends_too>/\s*)?THINK(?:ING)?\s*\](?!\()"
    r"|<\|channel>\s*(?:thought|analysis)\b|(?P<ends_channel><channel\|>)|(?P<begins_answer>\[BEGIN FINAL RESPONSE\])",
    re.IGNORECASE,
)
"""The beginning or the end of reasoning: `<think>`, `</Thinking>`, `<reasoning effort="low">`, `[THINK]`, Gemma 4's
`<|channel>thought` and `<channel|>`, and the beginning of Apriel's answer, `[BEGIN FINAL RESPONSE]`."""

_ANSWER = re.compile(
    r"(?:<\|(?:START_RESPONSE|begin_of_solution)\|>|<answer>)(?P<text>.*?)"
    r"(?:<\|(?:END_RESPONSE|end_of_solution)\|>|</answer>|\Z)\s*",
    re.DOTALL | re.IGNORECASE,
)
"""The answer in marks, as models write it behind their thought: Cohere, OpenThinker, models trained as DeepSeek R1."""
_ANSWER_END = re.compile(r"\s*\[END FINAL RESPONSE\]\s*\Z", re.IGNORECASE)

_BLANK = " \t\r\n\ufeff\u200b"


class Quotes(NamedTuple):
    """Quotations in which tags are not reasoning."""

    begins: re.Pattern[str]
    end: Callable[[str, int], int | None]
    """Returns the end of the quotation that begins at a place of a text; None: it is not sound, its tags are tags."""


def _end_of_json(text: str, at: int) -> int | None:
    reader = Reader(text, at)
    try:
        reader.value()
    except (LenientError, ValueError, RecursionError):
        return None
    return reader.at


JSON = Quotes(BEGINS_VALUE, _end_of_json)

_MOST_BROKEN = 100
"""The number of unfinished quotes after which no more are looked for, because a search for each end costs time."""


def without_reasoning(text: str, quotes: Quotes = JSON) -> str:
    """The text without its reasoning: what stands between tags, behind one that is not closed, and before an end
    without a beginning, as where a template has opened the tag before the answer began."""
    parts, at = [], 0
    for begin, end in _reasoning(text, quotes):
        parts.append(text[at:begin])
        at = end
    return "".join([*parts, text[at:]])


def blanked(text: str, quotes: Quotes = JSON) -> str:
    """Return the text with blanks in the place of its reasoning, so that all else stands where it stood."""
    if TAG.search(text) is None:
        return text
    parts, at = [], 0
    for begin, end in _reasoning(text, quotes):
        parts += [text[at:begin], " " * (end - begin)]
        at = end
    return "".join([*parts, text[at:]])


def for_people(text: str) -> str:
    """Return a text without its thoughts, wherever they stand, and without the marks of channels; tags that it only
    speaks of stay: those in code, in JSON, between quotes, or amid a sentence."""
    if TAG.search(text) is None and not text.lstrip(_BLANK).startswith(_CHANNELED):
        return text
    text = _without_channels(text)
    found = _reasoning(text, _PROSE, speaks=True)
    parts, at = [], 0
    for begin, end in found:
        parts.append(text[at:begin])
        at = end
    left = "".join([*parts, text[at:]])
    left = left.lstrip(_BLANK) if found or left != text else left
    if found and (answer := _ANSWER.fullmatch(left)) is not None:
        return answer["text"].strip(_BLANK)
    return _ANSWER_END.sub("", left) if found else left


def behind_thought(text: str) -> str:
    """Return a text without the whole thought that it begins with."""
    found = _reasoning(text, _PROSE)
    if not found or text[: found[0][0]].strip(_BLANK) or found[0][1] == len(text):
        return text
    begun = TAG.search(text)
    return text[found[0][1] :].lstrip(_BLANK) if begun is not None and not _ends(begun) else text


def so_far(text: str) -> str:
    """Return what people may read of a text that is still being written: its end may be the beginning of a tag."""
    begun = _BEGINS_TAG.search(text)
    bare = text.lstrip(_BLANK)
    is_bare = bool(_BARE_BEGUN.match(bare)) or ("analysis".startswith(bare) and bool(bare))
    if is_bare and not _BARE_CHANNELS.match(bare):
        return ""
    return for_people(text[: begun.start()] if begun is not None else text)


def lacks_opening(text: str) -> bool:
    """Return whether a text ends a thought that it has not begun: a chat template has opened it."""
    tag = TAG.search(text)
    return tag is not None and _ends(tag) and not _is_spoken_of(text, tag)


def has_tag(text: str) -> bool:
    """Return whether the beginning or the end of a thought stands in a text."""
    return TAG.search(text) is not None


# --- channels, as of harmony

_CHANNELED = ("<|channel|>", "<|start|>", "analysis")
_SEGMENT = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>\s*(?P<channel>\w+)(?P<head>[^\n]*?)<\|message\|>(?P<text>.*?)"
    r"(?P<end><\|(?:end|return|call)\|>|(?=<\|start\|>|<\|channel\|>)|\Z)",
    re.DOTALL,
)
_HEAD = re.compile(r"<\|(?:start|channel)\|>")
_BARE_CHANNELS = re.compile(r"analysis(?=[A-Z*\n]).*?assistant(?:commentary|final)(?=\S|\s)", re.DOTALL)
"""The same where a server has taken the marks away."""
_BARE_BEGUN = re.compile(r"analysis(?=[A-Z*\n])")


def _without_channels(text: str) -> str:
    """Return what is said in other channels than that of analysis; calls stay as they are written."""
    bare = _BARE_CHANNELS.match(text.lstrip(_BLANK))
    if bare is not None:
        return text.lstrip(_BLANK)[bare.end() :]
    if not text.lstrip(_BLANK).startswith(("<|channel|>", "<|start|>")):
        return text

    def said(segment: re.Match[str]) -> str:
        if "to=" in segment["head"]:
            return segment[0]
        return "" if segment["channel"] == "analysis" else segment["text"]

    left = _SEGMENT.sub(said, text)
    head = _HEAD.search(left)  # one whose words have not begun
    return left[: head.start()] if head is not None and "to=" not in left[head.start() :] else left


# --- what only speaks of tags

_QUOTING = "`'\"“”‘’«»"
_MOST_SPOKEN = 5
"""Words between two tags of which a sentence speaks: `<think> and </think>`."""

_BEGINS_TAG = re.compile(
    r"(?:[<◁]\|?\s*/?\s*[\w:|]{0,24}|<\|channel>\s*\w{0,8}|\[\s*/?\s*[A-Za-z]{0,8}"
    rf"|<\s*{_NAMES}\s[^<>]{{0,200}})\Z",
    re.IGNORECASE,
)


def _ends(tag: re.Match[str]) -> bool:
    return any(tag[name] for name in ("ends", "ends_too", "ends_channel", "begins_answer"))


def _is_spoken_of(text: str, tag: re.Match[str]) -> bool:
    """Return whether a tag is quoted, or stands amid a sentence with blanks around it."""
    before, after = text[tag.start() - 1 : tag.start()], text[tag.end() : tag.end() + 1]
    if before and before in _QUOTING and after and after in _QUOTING:
        return True
    said = text[: tag.start()].rstrip(" ")
    amid = bool(said) and len(said) < tag.start() and (said[-1].isalnum() or said[-1] in ",;(")
    if not amid:
        return False
    if _ends(tag):
        return after in tuple(",.;)") or (after == " " and text[tag.end() + 1 : tag.end() + 2].islower())
    close = TAG.search(text, tag.end())
    if close is None or not _ends(close):
        return False
    inner = text[tag.end() : close.start()]
    return "\n" not in inner and inner[:1] == inner[-1:] == " " and len(inner.split()) <= _MOST_SPOKEN


_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n(?:.*\n)*?[ \t]*\1[ \t]*$", re.MULTILINE)
_INLINE = re.compile(r"(`+)(?!`)[^\n]+?(?<!`)\1(?!`)")


def _end_of_quote(text: str, at: int) -> int | None:
    if text[at] in "{[":
        return _end_of_json(text, at)
    fence = _FENCE.match(text, at) or _INLINE.match(text, at)
    return fence.end() if fence is not None else None


_PROSE = Quotes(re.compile(rf"{BEGINS_VALUE.pattern}|^[ \t]*(?:```|~~~)|`", re.MULTILINE), _end_of_quote)


def _reasoning(text: str, quotes: Quotes, *, speaks: bool = False) -> list[tuple[int, int]]:
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
            if speaks and _is_spoken_of(text, tag):
                close = None if _ends(tag) else TAG.search(text, tag.end())
                at = close.end() if close is not None else tag.end()
                continue
        at, name = tag.end(), (tag["name"] or "think").casefold()
        if not _ends(tag):
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
