"""What people, models and tools wrote, as attributes: only for those who asked for it, and never more than so much."""

from __future__ import annotations

from typing import Any

import msgspec

from cadre.engine.chat import ChatMessage
from cadre.journal.events import RequestedCall
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.chat_messages import history, instructions
from cadre.telemetry.tracing.spans import Value

MOST_CHARS = 16_384
"""Of one attribute: a batch of longer ones would not fit what receivers take."""


class Content:
    """Attributes with content, or none at all when it is off."""

    def __init__(self, *, on: bool) -> None:
        self.on = on

    def of(self, **values: Any) -> dict[str, Value]:
        """`name=value` by the names of `cadre.tracing.names`; a value that is no text is written as JSON."""
        if not self.on:
            return {}
        return {getattr(names, name): _text(value) for name, value in values.items() if value is not None}

    def asked(self, messages: list[ChatMessage]) -> dict[str, Value]:
        """What a model read, in the form of the conventions. What it is told first, by the agent's prompts, has an
        attribute of its own: it is long, and the same in every call."""
        found: dict[str, Value] = {}
        if messages and messages[0]["role"] == "system":
            found[names.SYSTEM_INSTRUCTIONS] = instructions(messages[0], MOST_CHARS)
            messages = messages[1:]
        return found | ({names.INPUT_MESSAGES: history(messages, MOST_CHARS)} if messages else {})

    def answered(self, content: str, calls: list[RequestedCall]) -> dict[str, Value]:
        """What a model said, in the form of the conventions."""
        if not self.on:
            return {}
        parts: list[dict[str, Any]] = [{"type": "text", "content": content}] if content else []
        parts += [{"type": "tool_call", "name": call.name, "arguments": call.arguments} for call in calls]
        said = _text([{"role": "assistant", "parts": parts}])
        return {names.OUTPUT_MESSAGES: said, names.OUTPUT_VALUE: _text(content or [c.name for c in calls])}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
    return text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1] + "…"
