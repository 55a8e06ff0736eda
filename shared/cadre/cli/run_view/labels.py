"""What is shown of an action step beside its calls."""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from cadre.journal.parts import KindStep
from cadre.journal.unions import close

_TAG = re.compile(r"(?:\s*[<`\[][^\s]*)+\s*\Z")
"""What stands before a block of code: a tag, or the beginning of a fence."""


def step_lines(step: dict[str, Any]) -> Sequence[str]:
    """Return what the part of an action step that is its kind's own means; nothing for a kind that is not installed
    here."""
    own = step.get("own") or {}
    kind = close().steps.get(str(own.get("kind")))
    if kind is None:
        return ()
    read: KindStep = msgspec.convert(own, kind)
    return read.lines()


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
