"""How deep a JSON value is nested. What is too deep for a reader cannot be read back once it was written."""

from __future__ import annotations

from typing import Any

MAX_LEVELS = 200
"""Of lists and objects in each other, in what a model or a tool brings. JSON readers end at about a thousand."""


def nesting(value: Any) -> int:
    """How many lists and objects are in each other; 0 for a plain value."""
    count, layer = 0, [value]
    while layer := [one for one in layer if isinstance(one, list | dict)]:
        count += 1
        layer = [inner for one in layer for inner in (one.values() if isinstance(one, dict) else one)]
    return count
