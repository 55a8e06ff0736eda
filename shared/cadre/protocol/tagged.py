"""Convert tagged values of agents' code, `{"$given": [form, content]}`, for tools, schemas and people.

`nesting` measures the depth of JSON values: a value that is too deep can be written but not read back.
"""

from collections.abc import Callable
from typing import Any

_TEXTS = ("int", "complex", "fraction", "timedelta")
"""Forms whose content is a text that says it: digits, `1+2j`, `1/3`, an ISO 8601 duration."""

_NAMED = ("nan", "inf", "-inf")

_TAGS = frozenset(("$given", "$dict"))

_HOLD_MORE = frozenset((dict, list))

MAX_LEVELS = 200
"""The depth that is accepted from a model or a tool. JSON readers fail at about a thousand."""


def for_tool(value: Any) -> Any:
    """The value as a Python function gets it: NaN and infinities are floats, an integer is one, dicts have their keys;
    other numbers and durations are texts, which a parameter's hint may convert."""
    return _plain(value, float, int, dict)


def for_schema(value: Any) -> Any:
    """The value as a JSON Schema is asked of it: what is a number is one."""
    if isinstance(value, dict) and _TAGS.isdisjoint(value) and _HOLD_MORE.isdisjoint(map(type, value.values())):
        return value  # most calls' arguments
    return _plain(value, lambda name: 0.0, lambda digits: 2**63, _as_object)


def for_people(value: Any) -> Any:
    """The value as JSON that reads well: numbers and durations are texts, keys are texts."""
    return _plain(value, str, str, _as_object)


def _plain(
    value: Any,
    number: Callable[[str], Any],
    integer: Callable[[str], Any],
    pairs: Callable[[list[tuple[Any, Any]]], Any],
) -> Any:
    def plain(part: Any) -> Any:
        if isinstance(part, list):
            return [plain(item) for item in part]
        if not isinstance(part, dict):
            return part
        if len(part) != 1 or next(iter(part)) not in _TAGS:
            return {key: plain(item) for key, item in part.items()}
        match part:
            case {"$dict": dict(own)} if own.keys() & {"$given", "$file", "$dict"}:
                return {key: plain(item) for key, item in own.items()}
            case {"$given": ["float", str(name)]} if name in _NAMED:
                return number(name)
            case {"$given": ["int", str(digits)]} if digits.removeprefix("-").isdecimal():
                return integer(digits)
            case {"$given": [str(form), str(text)]} if form in _TEXTS:
                return text
            case {"$given": ["tuple" | "frozenset", list(items)]}:
                return tuple(plain(item) for item in items)
            case {"$given": ["dict", list(found)]} if all(isinstance(pair, list) and len(pair) == 2 for pair in found):
                try:
                    return pairs([(plain(key), plain(item)) for key, item in found])
                except TypeError:  # a key that cannot be one; no code has written it
                    return part
        return {key: plain(item) for key, item in part.items()}

    return plain(value)


def _as_object(pairs: list[tuple[Any, Any]]) -> Any:
    """An object where the texts of the keys tell them apart, else the pairs."""
    named = {str(key): item for key, item in pairs}
    return named if len(named) == len(pairs) else [list(pair) for pair in pairs]


def nesting(value: Any) -> int:
    """The number of lists and objects within each other; 0 for a plain value."""
    count, layer = 0, [value]
    while layer := [one for one in layer if isinstance(one, list | dict)]:
        count += 1
        layer = [inner for one in layer for inner in (one.values() if isinstance(one, dict) else one)]
    return count
