"""The nesting depth of JSON values. A value that is too deep could be written, but not be read back."""

from typing import Any

MAX_LEVELS = 200
"""The depth that is accepted from a model or a tool. JSON readers fail at about a thousand."""


def nesting(value: Any) -> int:
    """The number of lists and objects within each other; 0 for a plain value."""
    count, layer = 0, [value]
    while layer := [one for one in layer if isinstance(one, list | dict)]:
        count += 1
        layer = [inner for one in layer for inner in (one.values() if isinstance(one, dict) else one)]
    return count
