"""What the model answers where a step asks it: arguments of a tool, an answer of its own, the label of a way."""

import re
from collections.abc import Iterable
from typing import Any

from cadre.engine.answers.json_text import ReadingError, read_arguments
from cadre.engine.answers.lenient_json import LenientError, Reader
from cadre.engine.answers.reasoning import behind_reasoning, without_reasoning
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.spec.answer_schema import fitted, misfits

_FENCED = re.compile(r"```[a-zA-Z]*\n(.*?)```", re.DOTALL)
_MARKS = " \t\r\n\"'`.,;:*_“”‘’"
"""What may stand around a label without being part of it."""


def read_tool_arguments(tool: str, reply: ModelReplied) -> dict[str, Any]:
    """The arguments, from a call of the API or from JSON in the text. Raises ReadingError."""
    if reply.calls:
        return read_arguments(RequestedCall(tool, reply.calls[0].arguments))
    value = _json(reply.content)
    if isinstance(value, dict) and _is_call(value, tool):
        value = next((value[key] for key in ("arguments", "args", "parameters") if key in value), value)
    if not isinstance(value, dict):
        raise ReadingError("Answer with one JSON object: the arguments of the call.")
    return read_arguments(RequestedCall(tool, value))


def read_answer(schema: dict[str, Any] | None, reply: ModelReplied) -> Any:
    """The answer: text, or JSON that fits the schema. Raises ReadingError."""
    if schema is None:
        text = behind_reasoning(reply.content).strip()
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


def _is_call(value: dict[str, Any], tool: str) -> bool:
    name = value.get("name", value.get("tool"))
    return isinstance(name, str) and name.replace(" ", "").casefold() == tool.casefold()


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
