"""Converts stored messages of earlier schema versions to the present one. Pure, on JSON values.

A version that changes the schema adds one function to `STEPS`, which converts its predecessor's messages; it is never
changed once that version has been released. Version 1 is the first, so no function stands there yet. A run keeps the
rules that it began with: where the default of a new rule would apply to it, the function switches that rule off.
"""

from collections.abc import Callable, Iterator
from typing import Any

Fields = dict[str, Any]

STEPS: dict[int, Callable[[Fields], Fields]] = {}
"""Functions that convert a message to the next version, by the version that they convert."""


def upcast(message: Fields, version: int, wanted: int) -> Fields:
    """Convert a message of schema `version` to version `wanted`, possibly in place.

    Raises KeyError when a step is missing, and KeyError, TypeError or AttributeError when the message is not of its
    version.
    """
    for step in range(version, wanted):
        message = STEPS[step](message)
        for part in (message, *_inside(message)):
            part["v"] = step + 1
    return message


def _inside(message: Fields) -> Iterator[Fields]:
    """Yield the messages within a message, which have versions of their own."""
    match message["type"]:
        case "entry":
            yield from (event["task"] for event in message["events"] if event["type"] == "run.accepted")
        case "effect_result":
            yield message["claim"]
            yield message["result"]
