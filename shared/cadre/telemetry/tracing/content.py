"""What people, models and tools wrote, as span attributes: only when content is switched on, and bounded."""

from typing import Any

import msgspec

from cadre.engine.model_request import ChatMessage
from cadre.journal.events import RequestedCall
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.chat_messages import history, instructions
from cadre.telemetry.tracing.spans import Value

MAX_CHARS = 16_384
"""Characters of one attribute: receivers would refuse a batch of longer ones."""


class Content:
    """Makes attributes with content, or none at all when it is off."""

    def __init__(self, *, on: bool) -> None:
        self.on = on

    def of(self, **values: Any) -> dict[str, Value]:
        """The values by the names of `cadre.telemetry.tracing.names`; a value that is no text is written as JSON."""
        if not self.on:
            return {}
        return {getattr(names, name): _text(value) for name, value in values.items() if value is not None}

    def input_messages(self, messages: list[ChatMessage]) -> dict[str, Value]:
        """The messages that a model read, in the form of the conventions. The system prompt has an attribute of its
        own, because it is long and the same in every call."""
        found: dict[str, Value] = {}
        if messages and messages[0]["role"] == "system":
            found[names.SYSTEM_INSTRUCTIONS] = instructions(messages[0], MAX_CHARS)
            messages = messages[1:]
        return found | ({names.INPUT_MESSAGES: history(messages, MAX_CHARS)} if messages else {})

    def output_messages(
        self, content: str, calls: list[RequestedCall], items: list[dict[str, Any]]
    ) -> dict[str, Value]:
        """The text and the calls that a model answered, in the form of the conventions, behind what its endpoint gave
        beside them."""
        if not self.on:
            return {}
        parts = [_without_encrypted(item) for item in items if item["type"] != "function_call"]
        parts += [{"type": "text", "content": content}] if content else []
        parts += [{"type": "tool_call", "name": call.name, "arguments": call.arguments} for call in calls]
        answer = _text([{"role": "assistant", "parts": parts}])
        return {names.OUTPUT_MESSAGES: answer, names.OUTPUT_VALUE: _text(content or [c.name for c in calls])}


def _without_encrypted(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "encrypted_content"}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
