"""Messages of a chat completion in the form of the conventions: as much of them as an attribute holds, as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cadre.engine.chat import ChatMessage

LONGEST_PART = 4_096
"""Characters of the longest text within a message, as JSON."""

_LONGEST_MESSAGE = 6_144
_MARK = 128
"""Characters that the note on what is missing takes at most."""


def instructions(message: ChatMessage, most: int) -> str:
    return _json([_text(message["content"], most - _MARK)])


def history(messages: list[ChatMessage], most: int) -> str:
    """The first message and the latest ones, as many as `most` characters hold, and a note in the place of others.

    However long a conversation is, no more of it is looked at than that.
    """
    first, rest = _message(messages[0]), messages[1:]
    room = most - len(first) - _MARK
    latest: list[str] = []
    for message in reversed(rest):
        told = _message(message)
        room -= len(told) + 1
        if room < 0:
            break
        latest.append(told)
    missing = len(rest) - len(latest)
    note = [_json({"role": "system", "parts": [_note(missing, "message")]})] if missing else []
    return f"[{','.join([first, *note, *reversed(latest)])}]"


def _message(message: ChatMessage) -> str:
    parts = list(_parts(message))
    room, kept = _LONGEST_MESSAGE, 0
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
        said = _fitting(message["content"])
        yield {"type": "tool_call_response", "id": message["tool_call_id"], "response": said}
    elif isinstance(content, list):
        yield from (_image(part) if part["type"] == "image_url" else _text(part["text"]) for part in content)
    elif content:
        yield _text(content)
    for call in message.get("tool_calls", ()):
        function = call["function"]
        text = function["arguments"]
        arguments = msgspec.json.decode(text) if len(text) <= LONGEST_PART else _fitting(text)
        yield {"type": "tool_call", "id": call["id"], "name": function["name"], "arguments": arguments}


def _text(text: str, most: int = LONGEST_PART) -> dict[str, Any]:
    return {"type": "text", "content": _fitting(text, most)}


def _image(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "uri", "modality": "image", "uri": _fitting(part["image_url"]["url"])}


def _note(missing: int, what: str) -> dict[str, Any]:
    return {"type": "text", "content": f"[… {missing} {what}{'s' * (missing > 1)} left out here …]"}


def _fitting(text: str, most: int = LONGEST_PART) -> str:
    """The beginning of a text that would take more than `most` characters of JSON, and how much is missing."""
    if len(text) <= most and len(_json(text)) <= most:
        return text
    kept = room = most - _MARK
    while len(_json(text[:kept])) > room:
        kept = kept * 3 // 4  # what JSON has to escape takes more than one character
    return f"{text[:kept]}… [{len(text) - kept} characters left out]"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
