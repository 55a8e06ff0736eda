"""What people, models and tools wrote, as span attributes: only when content is switched on, and bounded."""

from typing import Any

import msgspec

from cadre.engine.model_request import ModelRequest
from cadre.journal.events import ModelAnswered
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.chat_messages import answer, definitions, history, instructions
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

    def model_input(self, request: ModelRequest) -> dict[str, Value]:
        """The messages that a model read and the tools that it was offered, in the form of the conventions. The system
        prompt has an attribute of its own, because it is long and the same in every call."""
        found: dict[str, Value] = {}
        if request.tools:
            found[names.TOOL_DEFINITIONS] = definitions(request.tools, MAX_CHARS)
        messages = request.messages
        if messages and messages[0]["role"] == "system":
            found[names.SYSTEM_INSTRUCTIONS] = instructions(messages[0], MAX_CHARS)
            messages = messages[1:]
        return found | ({names.INPUT_MESSAGES: history(messages, MAX_CHARS)} if messages else {})

    def output_messages(self, event: ModelAnswered, run: str) -> dict[str, Value]:
        """What a model answered, in the form of the conventions."""
        if not self.on:
            return {}
        said = answer(event, run, MAX_CHARS)
        # Who goes by OpenInference's names before the conventions' would show a text alone, and no calls.
        return {
            names.OUTPUT_MESSAGES: said,
            names.OUTPUT_VALUE: said if event.calls else _text(event.content),
        }


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
