"""JSON as models write it: with trailing commas, in single quotes, with Python's words, without its last brackets.

It is a separate parser and never runs code. What it mends is punctuation; a text or a number that is cut off stays
an error, because half a value may mean something else.
"""

import re
from typing import Any, NoReturn

import msgspec

from cadre.protocol.tagged import MAX_LEVELS

BEGINS = re.compile(r"\{\s*(?:[\"'}]|[A-Za-z_]\w*\s*:)")
"""The beginning of an object; any other brace is part of the prose."""

BEGINS_VALUE = re.compile(r"\[\s*(?:[\"'{\]])|" + BEGINS.pattern)
"""The beginning of an array of texts or objects, or of an object that may hold one."""

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[\s,\]}])")
"""One that stands at the very end may have been cut off."""

_WORD = re.compile(r"[A-Za-z_]\w*")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MEANT = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_CLOSING = {"{": "}", "[": "]"}


class LenientError(ValueError):
    """The text holds no value here, however kindly it is read; the text says where."""


class Reader:
    """Reads one value of a text, from a place in it."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.at = at
        """Behind what was read."""
        self.unclosed = False
        """The text ended before the value's last brackets."""
        self._text = text

    def value(self, level: int = 0) -> Any:
        """The value that begins here. Raises LenientError."""
        self._skip()
        begin = self._text[self.at : self.at + 1]
        if begin in _CLOSING:
            if level >= MAX_LEVELS:
                self._fail(f"more than {MAX_LEVELS} levels of lists and objects in each other")
            return self._object(level) if begin == "{" else self._list(level)
        if begin in ('"', "'"):
            return self._string()
        if number := _NUMBER.match(self._text, self.at):
            self.at = number.end()
            return msgspec.json.decode(number[0])
        word = _WORD.match(self._text, self.at)
        if word is None or word[0] not in _MEANT:
            self._fail("a value is missing")
        self.at = word.end()
        return _MEANT[word[0]]

    def _object(self, level: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while not self._closed("}"):
            key = self._key()
            self._skip()
            if self._text[self.at : self.at + 1] != ":":
                self._fail(f"no colon behind the key {key!r}")
            self.at += 1
            found[key] = self.value(level + 1)
            self._comma("}")
        return found

    def _list(self, level: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while not self._closed("]"):
            found.append(self.value(level + 1))
            self._comma("]")
        return found

    def _key(self) -> str:
        self._skip()
        if self._text[self.at : self.at + 1] in ('"', "'"):
            return self._string()
        word = _WORD.match(self._text, self.at)
        if word is None:
            self._fail("a key is missing")
        self.at = word.end()
        return word[0]

    def _string(self) -> str:
        found = _STRING.match(self._text, self.at)
        if found is None:
            self._fail("a text has no end")
        self.at = found.end()
        inner = found[1] if found[1] is not None else found[2]
        # Line breaks and quotes stand there as they are; all other escapes are JSON's, or no escapes at all.
        return str(msgspec.json.decode('"' + _ESCAPE.sub(_as_json, _quoted(inner)) + '"'))

    def _closed(self, closing: str) -> bool:
        self._skip()
        if self.at >= len(self._text):
            self.unclosed = True
            return True
        if self._text[self.at] != closing:
            return False
        self.at += 1
        return True

    def _comma(self, closing: str) -> None:
        self._skip()
        here = self._text[self.at : self.at + 1]
        if here == ",":
            self.at += 1
        elif here not in ("", closing):
            self._fail("a comma is missing")

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self.at)
        self.at = space.end() if space is not None else self.at

    def _fail(self, what: str) -> NoReturn:
        raise LenientError(f"{what} at character {self.at}")


def _quoted(text: str) -> str:
    """A text whose bare quotes and control characters are escaped; escapes in it stay as they are."""
    parts = re.split(r"(\\.)", text, flags=re.DOTALL)
    bare = (msgspec.json.encode(part).decode()[1:-1] for part in parts[::2])
    return "".join(part for pair in zip(bare, [*parts[1::2], ""], strict=True) for part in pair)


def _as_json(escape: re.Match[str]) -> str:
    """An escape as JSON has it: `\\'` is a quote, an unknown one a backslash."""
    what = escape[1]
    if what[0] in '"\\/bfnrt' or len(what) == 5:
        return escape[0]
    return "'" if what == "'" else "\\\\" + msgspec.json.encode(what).decode()[1:-1]
