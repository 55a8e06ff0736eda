"""Chat messages in the JSON of the GenAI conventions, as many as fit into one attribute."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cadre.engine.model_request import ChatMessage

MAX_PART_CHARS = 4_096
"""Characters of the longest text within a message, as JSON."""

_MAX_MESSAGE_CHARS = 6_144
_NOTE_CHARS = 128
"""Reserved for the note that says what was left out."""


def instructions(message: ChatMessage, most: int) -> str:
    """The system prompt, cut to `most` characters."""
    return _json([_text(message["content"], most - _NOTE_CHARS)])


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


def _message(message: ChatMessage) -> str:
    parts = list(_parts(message))
    room, kept = _MAX_MESSAGE_CHARS, 0
    for part in parts:
        room -= len(_json(part))
        if room < 0:
            break
        kept += 1
    missing = [_note(len(parts) - kept, "part")] if kept < len(parts) else []
    return _json({"role": message["role"], "parts": [*parts[:kept], *missing]})


def _parts(message: ChatMessage) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    if message["role"] == "tool":
        response = _fitting(message["content"])
        yield {"type": "tool_call_response", "id": message["tool_call_id"], "response": response}
    elif isinstance(content, list):
        yield from (_image(part) if part["type"] == "image_url" else _text(part["text"]) for part in content)
    elif content:
        yield _text(content)
    for call in message.get("tool_calls", ()):
        function = call["function"]
        text = function["arguments"]
        arguments = msgspec.json.decode(text) if len(text) <= MAX_PART_CHARS else _fitting(text)
        yield {"type": "tool_call", "id": call["id"], "name": function["name"], "arguments": arguments}


def _text(text: str, most: int = MAX_PART_CHARS) -> dict[str, Any]:
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
