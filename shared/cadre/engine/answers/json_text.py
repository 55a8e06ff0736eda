"""Read JSON that a model wrote, as it stands or as it was meant, and report to the model what cannot be read."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from cadre.engine.answers.lenient_json import BEGINS, BEGINS_VALUE, LenientError, Reader
from cadre.engine.answers.reasoning import without_reasoning
from cadre.journal.events import RequestedCall
from cadre.protocol.messages import ErrorInfo
from cadre.protocol.tagged import MAX_LEVELS, nesting

UNREADABLE = (ValueError, RecursionError)
"""The errors that decoding a model's JSON may raise: wrong syntax, half a surrogate pair, nesting without end."""


_FENCED = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


_BEHIND_ARGUMENTS = re.compile(r"[\s}]*(?:(?:</[\w:]+>|<\|/?\w+\|>)\s*)*")
"""A bracket too many, and marks of a dialect that the endpoint's parser has left behind the arguments."""

_QUOTED_KEY = re.compile(r"\{\s*[\"']")
_BRACKET = re.compile(r"[\[\]{}]")


_MOST_BROKEN = 100
"""Beginnings of values that come to nothing, after which no further one is looked for."""


class ReadingError(Exception):
    """The answer holds no call that could be made; the text is for the model."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.info = ErrorInfo("unreadable-answer", message)

    @property
    def sentence(self) -> str:
        """Return the text with a full stop behind it, for another sentence to follow."""
        return f"{str(self).rstrip('.')}."


def decode_text(text: str) -> Any:
    """Return the value of a text of JSON; small mistakes such as bare line breaks are read as meant.

    Raises one of UNREADABLE, also where the end is missing.
    """
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        reader = Reader(text)
        value = reader.value()
        if reader.unclosed or text[reader.at :].strip():
            raise
        return value


def read_arguments(call: RequestedCall) -> dict[str, Any]:
    """Return the arguments as an object; {} where they are blank, null or an empty list.

    They may be text of JSON, up to three times over, or stand alone in a list. Raises ReadingError naming the call and
    what is wrong with its JSON.
    """
    arguments: Any = call.arguments
    try:
        if isinstance(arguments, str):
            arguments = _arguments_in(arguments) if arguments.strip() else {}
        for _ in range(2):
            if isinstance(arguments, str) and _holds_object(arguments):
                arguments = decode_text(arguments)
    except UNREADABLE as error:
        raise ReadingError(f"The arguments of {call.name!r} are not valid JSON: {error}") from error
    if arguments in (None, "", []):
        return {}
    if isinstance(arguments, list) and len(arguments) == 1 and isinstance(arguments[0], dict):
        [arguments] = arguments
    if not isinstance(arguments, dict):
        raise ReadingError(f"The arguments of {call.name!r} must be a JSON object, not {_kind(arguments)}")
    if nesting(arguments) > MAX_LEVELS:
        raise ReadingError(
            f"The arguments of {call.name!r} are nested too deeply: give at most {MAX_LEVELS} levels of lists and"
            " objects in each other"
        )
    return arguments


def _holds_object(text: str) -> bool:
    """Return whether a text in the place of arguments is their JSON, written as a text once more."""
    return text.lstrip().startswith(("{", '"'))


def _arguments_in(text: str) -> Any:
    """Return the value of arguments, out of their fence and without what ends a call behind them. Raises one of
    UNREADABLE."""
    fenced = _FENCED.fullmatch(text.strip())
    text = fenced[1] if fenced is not None else text
    try:
        return decode_text(text)
    except UNREADABLE:
        reader = Reader(text)
        value = reader.value()
        if reader.unclosed or not isinstance(value, dict) or not _BEHIND_ARGUMENTS.fullmatch(text, reader.at):
            raise
        return value


def read_objects(content: str) -> list[dict[str, Any]]:
    """All JSON objects of an answer, those of its arrays too, with anything between them. Raises ReadingError where one
    cannot be read or lacks its end."""
    found, problem = _objects_in(without_reasoning(content))
    if problem or not all(one.closed for one in found):
        raise ReadingError(
            f"The tool call in your answer is not valid JSON: {problem or 'its last brackets are missing'}"
        )
    return [one.value for one in found]


def read_object(content: str, *keys: str, whole: bool = False) -> dict[str, Any]:
    """The JSON object that a model was asked for: bare, in a fence or in prose, with small mistakes mended.

    It is the one object of the answer that has one of `keys`. Its last brackets may be missing, unless it is to be
    `whole`. Raises ReadingError with what is wrong.
    """
    found, problem = _objects_in(_unfenced(content))
    wanted = [one.value for one in found if one.value.keys() & set(keys)]
    if whole and not problem and not all(one.closed for one in found):
        problem = "its last brackets are missing"
        wanted = []
    if not wanted and problem:
        raise ReadingError(f"The JSON in your answer cannot be read: {problem}")
    if not wanted:
        named = ", ".join(f'"{key}"' for key in keys)
        raise ReadingError(f"Your answer holds no JSON object with {named}")
    if any(one != wanted[0] for one in wanted[1:]):
        raise ReadingError(f"Your answer holds {len(wanted)} JSON objects: write one")
    return wanted[0]


def read_array(content: str, key: str) -> list[Any]:
    """The JSON array that a model was asked for: bare, in a fence or in prose, or under `key` of an object.

    Raises ReadingError with what is wrong.
    """
    text = _unfenced(content)
    begun = BEGINS_VALUE.search(text)
    if begun is None or begun[0][0] == "{":
        found = read_object(content, key)[key]
        if not isinstance(found, list):
            raise ReadingError(f'In your answer "{key}" must be a JSON array')
        return found
    try:
        value: list[Any] = Reader(text, begun.start()).value()
    except (LenientError, *UNREADABLE) as error:
        raise ReadingError(f"The JSON in your answer cannot be read: {error}") from error
    return value


def is_closed(content: str) -> bool:
    """Return whether the answer's JSON can be read and has all its brackets, so that nothing of it was cut off."""
    found, problem = _objects_in(_unfenced(content))
    return bool(found) and not problem and all(one.closed for one in found)


def values_in(text: str) -> Iterator[Any]:
    """Yield the JSON values that a text without thoughts may mean, the likeliest first: all of it, what stands in its
    fences, and the objects and arrays among its words."""
    for part in (text, *_FENCED.findall(text)):
        with contextlib.suppress(*UNREADABLE):
            yield decode_text(part.strip())
    at = broken = 0
    while broken < _MOST_BROKEN and (begun := BEGINS_VALUE.search(text, at)):
        reader = Reader(text, begun.start())
        try:
            value = reader.value()
        except (LenientError, *UNREADABLE):
            at, broken = begun.start() + 1, broken + 1
            continue
        at = max(reader.at, begun.start() + 1)
        if not reader.unclosed:
            yield value


class _ReadObject(NamedTuple):
    value: dict[str, Any]
    closed: bool


def _unfenced(content: str) -> str:
    """The answer without its reasoning, and without what stands around its fences, unless it begins as JSON."""
    text = without_reasoning(content).strip()
    fenced = [] if BEGINS.match(text) else _FENCED.findall(text)
    return "\n".join(fenced) if fenced else text


def _objects_in(text: str) -> tuple[list[_ReadObject], str]:
    """The objects of a text up to the first that cannot be read, and what is wrong with that one.

    Brackets in prose may begin like a value: all that they enclose is passed over.
    """
    found: list[_ReadObject] = []
    at, passed = 0, ""
    while begun := BEGINS_VALUE.search(text, at):
        reader = Reader(text, begun.start())
        try:
            value = reader.value()
            at = reader.at
        except (LenientError, *UNREADABLE) as error:
            end = None if _QUOTED_KEY.match(text, begun.start()) else _behind(text, begun.start())
            if end is None:
                return found, str(error)
            at, passed = end, passed or str(error)
            continue
        values = value if isinstance(value, list) else [value]
        found += [_ReadObject(one, not reader.unclosed) for one in values if isinstance(one, dict)]
    return found, "" if found else passed


def _behind(text: str, at: int) -> int | None:
    """Return where the brackets that begin here are closed again; None where they are not."""
    level = 0
    for bracket in _BRACKET.finditer(text, at):
        level += 1 if bracket[0] in "[{" else -1
        if level == 0:
            return bracket.end()
    return None


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "a boolean"}
    return names.get(type(value), "null")
