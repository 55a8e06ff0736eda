"""NAME=VALUE on a command line: a value is JSON if it parses as JSON, else text."""

import json
import math
from typing import Any

import click

from cadre.protocol.tagged import nesting

_MAX_LEVELS = 800
"""Levels of nested lists and objects that are sent; a gateway reads little more."""


class _Unsendable(Exception):
    """JSON that can be parsed and would not be sent as it was written."""


def key_values(option: str, texts: tuple[str, ...]) -> dict[str, Any]:
    """The values by name. Raises UsageError, naming `option`."""
    pairs = [_pair(option, text) for text in texts]
    keys = [key for key, _ in pairs]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise click.UsageError(f"{option} {twice[0]} is given more than once")
    return dict(pairs)


def text_values(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """The values by name, as text whatever they look like. Raises UsageError, naming `option`."""
    return {key: text.partition("=")[2] for key, text in zip(key_values(option, texts), texts, strict=True)}


def utf8(what: str, text: str) -> str:
    """Returns the text.

    Raises UsageError for bytes that are no UTF-8: Python reads them as surrogates, which JSON cannot carry.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise click.UsageError(f"{what} is not UTF-8 text (at character {error.start + 1})") from error
    return text


def json_value(what: str, text: str) -> Any:
    """Parses JSON; `what` names it in an error. Raises UsageError."""
    try:
        return _parsed(what, utf8(what, text))
    except ValueError as error:
        raise click.UsageError(f"{what} is not JSON: {error} (a text stands in quotes: '\"yes\"')") from error


def json_object(what: str, text: str) -> dict[str, Any]:
    """Parses a JSON object; `what` names it in an error. Raises UsageError."""
    value = json_value(what, text)
    if not isinstance(value, dict):
        raise click.UsageError(f'{what} must be a JSON object, like {{"amount": 50}}')
    return value


def _pair(option: str, text: str) -> tuple[str, Any]:
    key, mark, value = text.partition("=")
    if not mark or not key:
        raise click.UsageError(f"{option} {text!r}: write NAME=VALUE")
    utf8(f"{option} {key!a}", text)
    try:
        return key, _parsed(f"{option} {key}", value)
    except ValueError:
        return key, value


def _parsed(what: str, text: str) -> Any:
    """Parses JSON. Raises ValueError for other text, UsageError for JSON that cannot be sent."""
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_number, object_pairs_hook=_unique)
        nested = nesting(value)
    except _Unsendable as error:
        raise click.UsageError(f"{what}: {error}") from error
    except RecursionError:
        nested = _MAX_LEVELS + 1
    if nested > _MAX_LEVELS:
        raise click.UsageError(f"{what} is nested too deeply: write at most {_MAX_LEVELS} levels")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Unsendable(f"the key {twice!r} stands in one object more than once")
    return found


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Unsendable(f"{text[:40]} is too great a number")
    return value


def _no_constant(name: str) -> Any:
    """Refuses NaN and Infinity, which Python's parser knows and JSON does not."""
    raise ValueError(f"{name} is no JSON")
