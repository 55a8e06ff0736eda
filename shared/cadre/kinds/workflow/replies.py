"""What the model answers where a step asks it: arguments of a tool, an answer of its own, the label of a way."""

import re
from collections.abc import Iterable
from typing import Any

from cadre.engine.answers.json_text import ReadingError, read_arguments
from cadre.engine.answers.lenient_json import LenientError, Reader
from cadre.engine.answers.reasoning import for_people, without_reasoning
from cadre.engine.calls.call_check import input_schema
from cadre.engine.calls.calls_in_text import ARGUMENT_KEYS, read_call, read_given
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.spec.answer_schema import fitted, misfits

_FENCED = re.compile(r"```[a-zA-Z]*\n(.*?)```", re.DOTALL)
_MARKS = " \t\r\n\"'`.,;:*_“”‘’"
"""What may stand around a label without being part of it."""


def read_tool_arguments(run: Run, tool: str, reply: ModelReplied) -> dict[str, Any]:
    """The arguments, from a call of the API or from JSON in the text. Raises ReadingError."""
    schema = input_schema(run, tool) or {}
    value = reply.calls[0] if reply.calls else _json(reply.content)
    if isinstance(value, RequestedCall) and value.error is not None:
        raise ReadingError(value.error.message)
    if isinstance(value, dict) and not _is_call(value, tool, schema.get("properties", {})):
        return read_given(tool, value, schema)
    if not isinstance(value, dict | RequestedCall):
        raise ReadingError("Answer with one JSON object: the arguments of the call.")
    call = value
    if isinstance(call, dict):
        call = read_call(value, lambda name: schema if _is(name, tool) else None)
    if not _is(call.name, tool):
        raise ReadingError(f"Give the arguments of {tool!r}, not a call of {call.name!r}.")
    return read_arguments(call)


def read_answer(schema: dict[str, Any] | None, reply: ModelReplied) -> Any:
    """The answer: text, or JSON that fits the schema. Raises ReadingError."""
    if schema is None:
        text = for_people(reply.content).strip()
        if not text:
            raise ReadingError("Your answer is empty.")
        return text
    text = without_reasoning(reply.content).strip()
    value = fitted(schema, _json(text) if _looks_like_json(text) else text)
    if isinstance(value, dict) and value.keys() == {"answer"} and misfits(schema, value):
        value = value["answer"]  # an object was asked for, with the answer in it
    if wrong := misfits(schema, value):
        raise ReadingError(f"Your answer does not fit the schema: {'; '.join(wrong)}")
    return value


def read_label(options: Iterable[str], reply: ModelReplied) -> str | None:
    """Which of the labels was answered, whatever its case and the marks around it; None when none was."""
    text = without_reasoning(reply.content)
    try:
        value = _json(text) if _looks_like_json(text) else text
    except ReadingError:
        value = text
    if isinstance(value, dict):
        value = next(iter(value.values()), "")
    said = _bare(str(value))
    return next((option for option in options if _bare(option) == said), None)


def _bare(label: str) -> str:
    return label.strip(_MARKS).casefold()


def _is_call(value: dict[str, Any], tool: str, own: dict[str, Any]) -> bool:
    """Whether it is a call, or looks like one, and no mere arguments; `own` are the parameters of the tool."""
    has_function = isinstance(value.get("function"), dict) and "function" not in own
    name = value.get("name", value.get("tool"))
    if has_function or not isinstance(name, str):
        return has_function
    has_arguments = any(key in value and key not in own for key in ARGUMENT_KEYS)
    return has_arguments or (_is(name, tool) and own.keys().isdisjoint(("name", "tool")))


def _is(name: str, tool: str) -> bool:
    """Whether a model means the tool by the name."""
    return "".join(name.split()).casefold() == tool.casefold()


def _looks_like_json(text: str) -> bool:
    return text.strip()[:1] in ("{", "[", '"', "'", "`")


def _json(text: str) -> Any:
    """The JSON value that a text is or holds, in a fence or behind other words. Raises ReadingError."""
    text = without_reasoning(text).strip()
    fenced = _FENCED.search(text)
    text = fenced[1].strip() if fenced else text
    begin = text.find("{")
    for at in (0, begin) if begin > 0 else (0,):
        try:
            return Reader(text, at).value()
        except LenientError as error:
            problem = error
    raise ReadingError(f"Your answer is not valid JSON: {problem}")
