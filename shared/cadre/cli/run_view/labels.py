"""Words for what a run does, as the kinds of agents declare them."""

import json
import re
from importlib import import_module
from typing import Any, NamedTuple

from cadre.journal.run import SUMMARY
from cadre.spec.kinds import declared_kinds, once

_TAG = re.compile(r"(?:\s*[<`\[][^\s]*)+\s*\Z")
"""What stands before a block of code: a tag, or the beginning of a fence."""


class _Words(NamedTuple):
    purposes: dict[str, str]
    doing: dict[str, str]
    lines: dict[str, str]


@once
def _words() -> _Words:
    """Return the words of all kinds, by purpose, by event, and by event or kind."""
    kinds = declared_kinds().values()
    purposes = {purpose: text for kind in kinds for purpose, text in kind.purposes.items()}
    return _Words(
        purposes | {SUMMARY: "summarizing earlier steps"},
        {event: text for kind in kinds for event, text in kind.doing.items()},
        {name: kind.lines for kind in kinds for name in (kind.name, *kind.doing)},
    )


def purpose(name: str) -> str:
    """What a run does while a model call of this purpose is under way."""
    return _words().purposes.get(name, "thinking")


def doing(event: str) -> str | None:
    """What a run does after an event that only some kinds of agents journal; None for any other event."""
    return _words().doing.get(event)


def lines(name: str, told: dict[str, Any]) -> list[str]:
    """What is told of an event of a kind's own, by its name, or of the kind's part of a step, by the kind's."""
    module, _, attribute = _words().lines.get(name, "").partition(":")
    return [*getattr(import_module(module), attribute)(name, told)] if module else []


def step_lines(step: dict[str, Any]) -> list[str]:
    """What is told of the part of an action step that is its kind's own."""
    own = step.get("own") or {}
    return lines(str(own.get("kind")), own)


def model_output(step: dict[str, Any]) -> list[tuple[str, str]]:
    """What the model wrote in an action step, as titles and texts: its thought, and its code if it wrote any.

    Where thought and code cannot be told apart, the whole output stands for the thought.
    """
    content, code = str(step.get("content") or ""), str((step.get("own") or {}).get("code") or "")
    return [("thought", _thought(content, code) if code else content), ("code", code)]


def observed(step: dict[str, Any]) -> str | None:
    """What came of an action step beside the outcomes of its calls."""
    found: str | None = (step.get("own") or {}).get("observation")
    return found


def _thought(content: str, code: str) -> str:
    try:
        structured = json.loads(content)
    except ValueError:
        structured = None
    if isinstance(structured, dict) and isinstance(thought := structured.get("thought"), str):
        return thought
    begin = content.find(code)
    if begin < 0:
        return content
    return _TAG.sub("", content[:begin]).strip().removeprefix("Thought:").strip()
