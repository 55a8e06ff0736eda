"""Lays one tree of values over another, as a person who writes an override means it."""

from typing import Any

_IDENTITIES = ("name", "mountPath")
"""Keys that tell the items of a list apart: of containers, volumes and variables; of mounts."""


def merged(base: Any, over: Any, *, nulls: bool = False) -> Any:
    """`over` on `base`: mappings key by key, lists of named items item by item, all else replaced.

    None takes a key away; with `nulls` it stays, for both will lie over something that has the key. Neither argument is
    changed.
    """
    if isinstance(over, dict):
        below = base if isinstance(base, dict) else {}
        both = {key: merged(below.get(key), value, nulls=nulls) for key, value in over.items()}
        return {key: value for key, value in {**below, **both}.items() if nulls or value is not None}
    if isinstance(base, list) and isinstance(over, list) and (key := _identity(base, over)):
        items = {item[key]: item for item in base}
        for item in over:
            items[item[key]] = merged(items.get(item[key]), item, nulls=nulls)
        return list(items.values())
    return over


def _identity(base: list[Any], over: list[Any]) -> str | None:
    """The key that all items have; the mount path first, for a mount's `name` is its volume's."""
    for key in reversed(_IDENTITIES):
        if base and over and all(isinstance(item, dict) and key in item for item in (*base, *over)):
            return key
    return None
