"""The reasoning that some models write before their answer, in tags: what it weighs and rejects is not to be done."""

import re

_NAMES = "think|thinking|reasoning|reflection"
_FIRST = re.compile(rf"\s*<({_NAMES})>(?:.*?</\1>|.*\Z)", re.DOTALL)
_CLOSED = re.compile(rf"\A(?:(?!<(?:{_NAMES})>).)*?^[ \t]*</(?:{_NAMES})>", re.DOTALL | re.MULTILINE)
"""A template may have opened the tag before the answer began: only its end stands there, on a line of its own."""


def without_reasoning(text: str) -> str:
    """The answer behind the reasoning that it begins with; "" where the reasoning has no end."""
    if "<" not in text:
        return text
    if closed := _CLOSED.match(text):
        text = text[closed.end() :]
    while begun := _FIRST.match(text):
        text = text[begun.end() :]
    return text
