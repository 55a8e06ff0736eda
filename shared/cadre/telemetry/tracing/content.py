"""Write what people, models and tools wrote as span attributes, only when content is switched on.

Chat messages have the JSON of the GenAI conventions; each attribute is cut to its size.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from cadre.engine.model_request import ChatMessage, ModelRequest
from cadre.journal.events import ModelAnswered
from cadre.protocol.topology import call_id
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.spans import Value

MAX_CHARS = 16_384
"""Characters of one attribute: receivers would refuse a batch of longer ones."""

MAX_PART_CHARS = 4_096
"""Characters of the longest text within a message, as JSON."""

_MAX_MESSAGE_CHARS = 6_144
_FINISH_REASONS = {"tool_calls": "tool_call", "function_call": "tool_call"}
"""The names in the conventions for what endpoints say; other reasons have one name."""
_NOTE_CHARS = 128
"""Reserved for the note that says what was left out."""


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
        prompt has its own attribute, because it is long and the same in every call."""
        found: dict[str, Value] = {}
        if request.tools:
            found[names.TOOL_DEFINITIONS] = definitions(request.tools, MAX_CHARS)
        messages = request.messages
        if messages and messages[0]["role"] == "system":
            found[names.SYSTEM_INSTRUCTIONS] = instructions(messages[0], MAX_CHARS)
            messages = messages[1:]
        return found | ({names.INPUT_MESSAGES: history(messages, MAX_CHARS)} if messages else {})

    def output_messages(self, event: ModelAnswered, run: str) -> dict[str, Value]:
        """Return what a model answered, in the form of the conventions."""
        if not self.on:
            return {}
        said = answer(event, run, MAX_CHARS)
        # A backend that prefers OpenInference's names to the conventions' would show only a text, and no calls.
        return {
            names.OUTPUT_MESSAGES: said,
            names.OUTPUT_VALUE: said if event.calls else _text(event.content),
        }


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="deterministic").decode()
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def instructions(message: ChatMessage, most: int) -> str:
    """The system prompt, cut to `most` characters."""
    return _json([_text_of(message["content"], most - _NOTE_CHARS)])


def history(messages: list[ChatMessage], most: int) -> str:
    """The first message and the latest ones that fit into `most` characters, with a note in place of the others.

    Takes time for these alone, however long the conversation is.
    """
    first, rest = _message(messages[0]), messages[1:]
    room = most - len(first) - _NOTE_CHARS
    latest: list[str] = []
    for message in reversed(rest):
        rendered = _message(message)
        room -= len(rendered) + 1
        if room < 0:
            break
        latest.append(rendered)
    missing = len(rest) - len(latest)
    note = [_json({"role": "system", "parts": [_note(missing, "message")]})] if missing else []
    return f"[{','.join([first, *note, *reversed(latest)])}]"


def answer(event: ModelAnswered, run: str, most: int) -> str:
    """Return what a model answered: the other items of its endpoint's answer, the text and the calls, under the ids
    that the run gives them; as many of these as fit into `most` characters."""
    parts = [_without_encrypted(item) for item in event.items if item["type"] != "function_call"]
    parts += [_text_of(event.content)] if event.content else []
    parts += [
        {"type": "tool_call", "id": call_id(run, event.step, place), **_call(call.name, call.arguments)}
        for place, call in enumerate(event.calls)
    ]
    reason = _FINISH_REASONS.get(event.finish_reason, event.finish_reason)
    reason = reason or ("tool_call" if event.calls else "stop")
    fitting = _fitting_parts(parts, most - 2 * _NOTE_CHARS)
    return _json([{"role": "assistant", "parts": fitting, "finish_reason": reason}])


def definitions(functions: list[dict[str, Any]], most: int) -> str:
    """The tools that a model is offered; those that do not fit into `most` characters whole have only their names."""
    found = [{"type": "function", **one["function"]} for one in functions]
    room = most - sum(len(_json(_bare(one))) + 1 for one in found)
    shown = []
    for one in found:
        room -= len(_json(one)) - len(_json(_bare(one)))
        shown.append(one if room >= 0 else _bare(one))
    return _json(shown)


def _bare(definition: dict[str, Any]) -> dict[str, Any]:
    return {key: definition[key] for key in ("type", "name")}


def _message(message: ChatMessage) -> str:
    parts = _fitting_parts(list(_parts(message)), _MAX_MESSAGE_CHARS)
    return _json({"role": message["role"], "parts": parts})


def _fitting_parts(parts: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    kept = 0
    for part in parts:
        room -= len(_json(part)) + 1
        if room < 0:
            break
        kept += 1
    return [*parts[:kept], *([_note(len(parts) - kept, "part")] if kept < len(parts) else [])]


def _parts(message: ChatMessage) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    if message["role"] == "tool":
        response = _fitting(message["content"])
        yield {"type": "tool_call_response", "id": message["tool_call_id"], "response": response}
    elif isinstance(content, list):
        yield from (_image(part) if part["type"] == "image_url" else _text_of(part["text"]) for part in content)
    elif content:
        yield _text_of(content)
    for call in message.get("tool_calls", ()):
        function = call["function"]
        yield {"type": "tool_call", "id": call["id"], **_call(function["name"], function["arguments"])}


def _call(name: str, arguments: str | dict[str, Any]) -> dict[str, Any]:
    """Return a call with its arguments as JSON, or as the beginning of a text if they are not JSON or too long."""
    text = arguments if isinstance(arguments, str) else _json(arguments)
    try:
        found = msgspec.json.decode(text) if len(text) <= MAX_PART_CHARS else _fitting(text)
    except msgspec.DecodeError:
        found = _fitting(text)
    return {"name": name, "arguments": found}


def _without_encrypted(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != "encrypted_content"}


def _text_of(text: str, most: int = MAX_PART_CHARS) -> dict[str, Any]:
    return {"type": "text", "content": _fitting(text, most)}


def _image(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "uri", "modality": "image", "uri": _fitting(part["image_url"]["url"])}


def _note(missing: int, what: str) -> dict[str, Any]:
    return {"type": "text", "content": f"[… {missing} {what}{'s' * (missing > 1)} left out here …]"}


def _fitting(text: str, most: int = MAX_PART_CHARS) -> str:
    """The text; if it takes more than `most` characters of JSON, its beginning and a note on what is missing."""
    if len(text) <= most and len(_json(text)) <= most:
        return text
    kept = room = most - _NOTE_CHARS
    while len(_json(text[:kept])) > room:
        kept = kept * 3 // 4  # what JSON has to escape takes more than one character
    return f"{text[:kept]}… [{len(text) - kept} characters left out]"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
