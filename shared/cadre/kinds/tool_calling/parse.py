"""What the model wrote, read as calls: native tool calls, or one or more written as JSON in its text."""

import json
import re
from typing import Any

import msgspec

from cadre.engine.answers.json_text import UNREADABLE, ReadingError, read_arguments
from cadre.engine.answers.reasoning import without_reasoning
from cadre.journal.events import RequestedCall

_OBJECT = re.compile(r'\{\s*["}]')
"""How a JSON object begins; any other brace is part of the prose."""

_NO_CALL = (
    "Your answer holds no tool call. Call a tool, or call `final_answer` with your answer when you are done."
)


def read_calls(content: str, calls: list[RequestedCall]) -> list[RequestedCall]:
    """The calls that an answer asks for, in the model's order. Raises ReadingError when there is none."""
    return calls or _calls_in_text(without_reasoning(content))


def _calls_in_text(content: str) -> list[RequestedCall]:
    found = _objects_in(content)
    if not found:
        raise ReadingError(_NO_CALL)
    calls = [one for one in found if not _is_declaration(one)]
    if not calls:
        raise ReadingError(
            "Your answer repeats how a tool is declared, and calls none. Write the call itself, as in"
            ' {"name": "some_tool", "arguments": {"some_argument": "value"}}'
        )
    return [_call_of(one) for one in calls]


def _objects_in(text: str) -> list[Any]:
    """The JSON objects in a text, one after the other with anything between them."""
    decoder = json.JSONDecoder()  # it alone tells where a value ends; msgspec decides what a value is
    found: list[Any] = []
    at = 0
    while begun := _OBJECT.search(text, at):
        try:
            _, at = decoder.raw_decode(text, begun.start())
            found.append(msgspec.json.decode(text[begun.start() : at]))
        except UNREADABLE as error:
            raise ReadingError(f"The tool call in your answer is not valid JSON: {error}") from error
    return found


def _is_declaration(value: Any) -> bool:
    """Whether it says how a tool is called, as the model was told, and not to call it."""
    if not isinstance(value, dict):
        return False
    function = value.get("function")
    inner = function if isinstance(function, dict) else value
    return "arguments" not in inner and "args" not in inner and _is_schema(inner.get("parameters"))


def _is_schema(value: Any) -> bool:
    """Whether a value is a JSON Schema of arguments, and not arguments."""
    if not isinstance(value, dict):
        return False
    properties = value.get("properties")
    return value.get("type") == "object" or (
        isinstance(properties, dict) and all(isinstance(one, dict) for one in properties.values())
    )


def _call_of(value: Any) -> RequestedCall:
    """Accepts {name, arguments}, the same under `function`, the names `tool`, `args` and Llama's `parameters`."""
    if isinstance(value, dict):
        function = value.get("function")
        inner = function if isinstance(function, dict) else value
        name = inner.get("name") or inner.get("tool")
        arguments = next((inner[key] for key in ("arguments", "args", "parameters") if key in inner), None)
        if isinstance(name, str):
            name = name.removeprefix("functions.")
            if isinstance(arguments, str):
                return RequestedCall(name, read_arguments(RequestedCall(name, arguments)))
            if isinstance(arguments, dict):
                return RequestedCall(name, arguments)
    raise ReadingError(
        'The tool call in your answer needs the keys "name" and "arguments", as in'
        ' {"name": "some_tool", "arguments": {"some_argument": "value"}}'
    )
