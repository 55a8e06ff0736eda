"""Words for what a run does: the one place of the terminal that knows what kinds of agents journal."""

from __future__ import annotations

import json
import re
from typing import Any

_PURPOSES = {
    "act": "thinking",
    "plan": "planning",
    "final": "writing the final answer",
    "summary": "summarizing earlier steps",
}
_DOING = {"code.started": "running code", "code.finished": ""}
_TAG = re.compile(r"(?:\s*[<`\[][^\s]*)+\s*\Z")
"""What stands before a block of code: a tag, or the beginning of a fence."""


def purpose(name: str) -> str:
    """What a run does while a model call of this purpose is under way."""
    return _PURPOSES.get(name, "thinking")


def doing(event: str) -> str | None:
    """What a run does after an event that only some kinds of agents journal; None for any other event."""
    return _DOING.get(event)


def model_output(step: dict[str, Any]) -> list[tuple[str, str]]:
    """What the model wrote in an action step, as titles and texts: its thought, and its code if it wrote any.

    Where thought and code cannot be told apart, the whole output stands for the thought.
    """
    content, code = str(step.get("content") or ""), str(step.get("code") or "")
    return [("thought", _thought(content, code) if code else content), ("code", code)]


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
