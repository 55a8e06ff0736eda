"""What the model wrote, read as calls: native tool calls, or one or more written as JSON in its text."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cadre.engine.json_text import UNREADABLE, ReadingError, read_arguments
from cadre.journal.events import RequestedCall


def read_calls(content: str, calls: list[RequestedCall]) -> list[RequestedCall]:
    """The calls that an answer asks for, in the model's order. Raises ReadingError when there is none."""
    return calls or _calls_in_text(content)


def _calls_in_text(content: str) -> list[RequestedCall]:
    start, end = content.find("{"), content.rfind("}")
    if start < 0 or end < start:
        raise ReadingError(
            "Your answer holds no tool call. Call a tool, or call `final_answer` with your answer when you are done."
        )
    text = content[start : end + 1]
    try:
        found = msgspec.json.decode(text)
    except UNREADABLE:
        found = _decode_each(text)
    many = found if isinstance(found, list) else [found]
    return [_call_of(one) for one in many]


def _decode_each(text: str) -> list[Any]:
    """Several JSON objects, one after the other with anything between them."""
    decoder = json.JSONDecoder()  # it alone tells where a value ends; msgspec decides what a value is
    found: list[Any] = []
    at = 0
    while (at := text.find("{", at)) >= 0:
        try:
            _, end = decoder.raw_decode(text, at)
            found.append(msgspec.json.decode(text[at:end]))
        except UNREADABLE as error:
            raise ReadingError(f"The tool call in your answer is not valid JSON: {error}") from error
        at = end
    return found


def _call_of(value: Any) -> RequestedCall:
    """Accepts {name, arguments}, the same under `function`, and the names `tool` and `args`."""
    if isinstance(value, dict):
        function = value.get("function")
        inner = function if isinstance(function, dict) else value
        name = inner.get("name") or inner.get("tool")
        arguments = inner.get("arguments", inner.get("args", {}))
        if isinstance(name, str) and isinstance(arguments, str):
            return RequestedCall(name, read_arguments(RequestedCall(name, arguments)))
        if isinstance(name, str) and isinstance(arguments, dict):
            return RequestedCall(name, arguments)
    raise ReadingError(
        'The tool call in your answer needs the keys "name" and "arguments", as in'
        ' {"name": "some_tool", "arguments": {"some_argument": "value"}}'
    )
