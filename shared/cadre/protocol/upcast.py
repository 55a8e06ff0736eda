"""Converts stored messages of earlier schema versions to the present one. Pure, on JSON values.

One function per version converts to the next; it is never changed once the next version has been released. A run keeps
the rules that it began with: where the default of a new rule would apply to it, the function switches that rule off.
"""

from collections.abc import Callable, Iterator
from typing import Any

Fields = dict[str, Any]

UNBOUNDED = 1_000_000_000


def upcast(message: Fields, version: int, wanted: int) -> Fields:
    """Converts a message of schema `version` to version `wanted`, possibly in place.

    Raises KeyError, TypeError or AttributeError when the message is not of its version.
    """
    for step in range(version, wanted):
        message = _STEPS[step](message)
        for part in (message, *_inside(message)):
            part["v"] = step + 1
    return message


def _inside(message: Fields) -> Iterator[Fields]:
    """Yields the messages within a message, which have versions of their own."""
    match message["type"]:
        case "entry":
            yield from (event["task"] for event in message["events"] if event["type"] == "run.accepted")
            snapshot = message.get("snapshot")
            if snapshot is not None and snapshot["task"] is not None:
                yield snapshot["task"]
        case "effect_result":
            yield message["claim"]
            yield message["result"]


def _specs(message: Fields) -> Iterator[Fields]:
    """Yields each agent spec in an entry."""
    if message["type"] != "entry":
        return
    yield from (event["spec"] for event in message["events"] if event["type"] == "run.accepted")
    snapshot = message.get("snapshot")
    if snapshot is not None and snapshot["spec"] is not None:
        yield snapshot["spec"]


def _from_1(message: Fields) -> Fields:
    """Version 2 bounds the calls that a run sends at once, refuses repeated calls, and summarizes steps that the
    context has no room for."""
    for spec in _specs(message):
        spec["model"] = {"context": UNBOUNDED, **spec.get("model", {})}
        spec["limits"] = {"parallel": UNBOUNDED, "repeats": 0, **spec.get("limits", {})}
    return message


def _from_2(message: Fields) -> Fields:
    """Version 3 keeps what an agent's kind knows of a run, and of a step, apart from the common state."""
    if message["type"] != "entry":
        return message
    for event in message["events"]:
        if event["type"] == "run.accepted":
            for step in (*event.get("history", ()), *event.get("prefix", ())):
                _part_step(step)
    snapshot = message.get("snapshot")
    if snapshot is not None:
        for former, name in _RENAMED.items():
            if former in snapshot:
                snapshot[name] = snapshot.pop(former)
        for step in (*snapshot["steps"], *filter(None, [snapshot.get("current")])):
            _part_step(step)
        work, variables, inherited = (snapshot.pop(key, None) for key in ("code", "snapshot", "inherited"))
        if snapshot["spec"] is not None and snapshot["spec"].get("kind") == "code":
            own = {"kind": "code", "work": work, "snapshot": variables, "inherited": inherited}
            snapshot["own"] = {key: value for key, value in own.items() if value is not None}
    return message


_RENAMED = {
    "memory": "steps",
    "base": "fixed_tokens",
    "weight": "tokens",
    "scale": "calibration",
    "tight": "overflows",
    "refused": "refused_tokens",
    "strays": "late_members",
    "troubled_since": "failing_since",
    "refusals": "refused_repeats",
}
"""Fields of a run's state that version 3 calls by the field's words."""


def _part_step(step: Fields) -> None:
    """Moves the block of code of an action step to its kind's own part."""
    own = {key: step.pop(key) for key in ("code", "observation", "snapshot") if key in step}
    if own.get("code") is not None:
        step["own"] = {"kind": "code", **own}


LATER = frozenset(
    {
        "fixed_tokens",
        "entry",
        "images",
        "recalling",
        "refused_tokens",
        "calibration",
        "summary",
        "then",
        "overflows",
        "usage",
        "tokens",
    }
)
"""Fields of a run's state that snapshots of version 1 lack."""

_STEPS: dict[int, Callable[[Fields], Fields]] = {1: _from_1, 2: _from_2}

OLDEST = min(_STEPS)
"""The earliest version that can be read."""
