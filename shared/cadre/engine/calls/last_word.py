"""Answers in words, of which a call is none: the last word of a run whose steps are used up, and a summary."""

import re
from typing import Any

from cadre.engine.answers.answer_form import LAST_WORD_FAILED, answer_of, last_answer_of
from cadre.engine.answers.json_text import UNREADABLE, ReadingError, decode_text, read_arguments
from cadre.engine.answers.reasoning import without_reasoning
from cadre.engine.calls.call_check import FINAL_ANSWER_SCHEMA
from cadre.engine.calls.call_schema import schema_at_root
from cadre.engine.calls.calls_in_text import read_calls, schemas_of
from cadre.engine.model_choice import asked_model
from cadre.engine.tool_names import FINAL_ANSWER
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run

_BEGINS_CALL = re.compile(r"\s*(?:```\w*\s*|<\|?tool_call\|?>\s*)?[\[{]")


def answer_form(run: Run) -> dict[str, Any] | None:
    """Return the JSON Schema of the last word of a run without an output schema; None: any text.

    A model whose calls are held to a schema is held to the arguments of `final_answer`: it would call a tool else.
    """
    held = asked_model(run).calls == "schema"
    return schema_at_root(FINAL_ANSWER, FINAL_ANSWER_SCHEMA, {}) if held else None


def last_word(run: Run, reply: ModelReplied) -> Any:
    """Return the answer that the model gave when its steps were used up, as text or through `final_answer`; in place of
    any other call, which nothing can follow, what went wrong."""
    calls = reply.calls or calls_alone(run, reply.content)
    if not calls:
        return _held_answer(run, last_answer_of(run, reply.content))
    for call in calls:
        if call.name == FINAL_ANSWER and (arguments := _arguments(call)) is not None:
            return answer_of(run, arguments["answer"])
    return f"{LAST_WORD_FAILED}the model called {calls[0].name!r}, but its steps were used up."


def calls_alone(run: Run, text: str) -> list[RequestedCall]:
    """Return the calls of functions on offer that a text begins with; [] for a text that says something first."""
    text = without_reasoning(text)
    if _BEGINS_CALL.match(text) is None:
        return []
    schema_of = schemas_of(run)
    try:
        calls = read_calls(text, schema_of)
    except ReadingError:
        return []
    return [call for call in calls if schema_of(call.name) is not None]


def _arguments(call: RequestedCall) -> dict[str, Any] | None:
    try:
        arguments = read_arguments(call)
    except ReadingError:
        return None
    return arguments if "answer" in arguments else None


def _held_answer(run: Run, said: Any) -> Any:
    """The value of an answer that was held to `answer_form`."""
    if run.spec is None or run.spec.output_schema is not None or not isinstance(said, str):
        return said
    if answer_form(run) is None:
        return said
    try:
        value = decode_text(said)
    except UNREADABLE:
        return said
    return value["answer"] if isinstance(value, dict) and value.keys() == {"answer"} else said
