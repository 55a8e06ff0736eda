"""Calls that a model wrote into its text: what is one, what only looks like one, and what is a last word.

A call names its function and has its arguments under a key for them. A name alone is not a call, nor is a declaration
of a function as the model was given it: small models repeat schemas and examples, which must not be carried out.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from cadre.engine.answers.answer_form import (
    LAST_WORD_FAILED,
    answer_of,
    final_answer_parameters,
    last_answer_of,
)
from cadre.engine.answers.json_text import UNREADABLE, ReadingError, decode_text, read_arguments, read_objects
from cadre.engine.answers.reasoning import without_reasoning
from cadre.engine.calls.call_check import (
    FINAL_ANSWER_SCHEMA,
    CallNotAllowed,
    check_arguments,
    input_schema,
)
from cadre.engine.calls.call_schema import schema_at_root
from cadre.engine.model_request import asked_model
from cadre.journal.arrivals import ModelReplied
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.spec.names import FINAL_ANSWER

Schema = dict[str, Any]

SchemaOf = Callable[[str], Schema | None]
"""The JSON Schema of what a function takes; None where none of that name can be called."""

_NOT_NAMED = 'The tool call in your answer needs the keys "name" and "arguments".'
_NO_CALL = "Your answer holds no tool call. Call a tool, or call `final_answer` with your answer when you are done."

_DECLARED = "Your answer repeats how the tool {!r} is declared, and calls none. Write the call itself, with values."

_SURE = ("arguments", "args", "tool_input", "action_input")
_ALSO_DECLARED = ("parameters", "input", "input_schema")
"""Keys of arguments in the calls of some models, and of the schema in declarations."""
ARGUMENT_KEYS = (*_SURE, *_ALSO_DECLARED)

_NAME_KEYS = ("name", "tool", "function", "tool_name", "recipient_name", "action")
"""Keys of names: OpenAI's, those of its parallel calls, Cohere's and LangChain's."""
_LIST_KEYS = ("tool_calls", "tool_uses")
"""Keys of lists of calls, as the APIs write them."""

_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_KEYWORDS = {"$ref", "$schema", "$defs", "definitions", "properties", "anyOf", "oneOf", "allOf", "enum"}
_PLACEHOLDERS = ("…", "...")
"""The placeholders for values in the examples of prompts."""


class NoCall(ReadingError):
    """The text that was read is no call; the answer may hold one elsewhere."""


def schemas_of(run: Run) -> SchemaOf:
    """Return what the functions take that the run may call now."""

    def find(name: str) -> Schema | None:
        found = input_schema(run, name)
        return final_answer_parameters(run) if found is FINAL_ANSWER_SCHEMA else found

    return find


def read_calls(content: str, schema_of: SchemaOf = lambda name: None) -> list[RequestedCall]:
    """Return the calls in a text, in its order, with anything between them. Raise ReadingError for a text without a
    call, or with one that cannot be read."""
    calls: list[RequestedCall] = []
    problem = NoCall(_NO_CALL)
    for value in (one for found in read_objects(content) for one in several(found)):
        try:
            calls.append(read_call(value, schema_of))
        except NoCall as error:
            problem = error
    if not calls:
        raise problem
    return calls


def several(value: Any) -> list[Any]:
    """Return the values of which each is a call: those of a list, or of a list in an object; else the value alone."""
    if isinstance(value, dict):
        value = next((value[key] for key in _LIST_KEYS if isinstance(value.get(key), list)), value)
    return value if isinstance(value, list) else [value]


def read_call(value: Any, schema_of: SchemaOf) -> RequestedCall:
    """Return the call that a JSON value is: {name, arguments}, also under `function` or `tool`, or with other keys for
    these. Raises NoCall if it is not a call, ReadingError if its arguments cannot be read."""
    for wrapper in ("function", "tool", "function_call"):
        if isinstance(value, dict) and isinstance(value.get(wrapper), dict):
            return read_call(value[wrapper], schema_of)
    found = value if isinstance(value, dict) else {}
    name = next((found[key] for key in _NAME_KEYS if isinstance(found.get(key), str)), "")
    if not name:
        raise NoCall(_NOT_NAMED)
    if schema_of(name) is None:
        name = name.removeprefix("functions.")
    key = next((key for key in ARGUMENT_KEYS if key in found), None)
    if key is None:
        raise NoCall(
            f'{name!r} stands in your answer without "arguments", which is no call. Give them, {{}} where it has none.'
        )
    if key in _SURE:
        return RequestedCall(name, read_given(name, found[key], schema_of(name)))
    arguments = read_given(name, found[key], schema_of(name), among=_TYPES)
    if not arguments or "description" in found:
        raise NoCall(_DECLARED.format(name))
    return RequestedCall(name, arguments)


def read_given(name: str, given: Any, schema: Schema | None, among: tuple[str, ...] = ()) -> dict[str, Any]:
    """The arguments that were given to a function: an object, or the one argument of a function that takes no other.

    Raises NoCall for what declares them, also where each is one of the words `among`; ReadingError for other values.
    """
    arguments = _as_object(name, given, schema)
    own = schema.get("properties", {}) if schema is not None else {}
    is_told = arguments.get("properties", {}) == own != {}
    values = {key: value for key, value in arguments.items() if value != {}}
    is_told |= bool(values) and all(
        _declares(own.get(key, {}), value) or value in among for key, value in values.items()
    )
    if is_told or (_looks_declared(arguments) and not _takes(name, schema, arguments)):
        raise NoCall(_DECLARED.format(name))
    return arguments


def _as_object(name: str, given: Any, schema: Schema | None) -> dict[str, Any]:
    """Arguments may be written as a text of JSON; those of a function with one parameter as its value alone."""
    parameters = [*schema.get("properties", {})] if schema is not None else []
    value = given
    if isinstance(given, str):
        try:
            value = msgspec.json.decode(given)
        except UNREADABLE:
            value = _mended(given, parameters)
    if len(parameters) == 1 and not isinstance(value, dict):
        assert schema is not None
        if given not in (None, "", []) or parameters[0] in schema.get("required", []):
            only = {parameters[0]: given}
            # A text may be the JSON of what it means: "5" for the number 5.
            meant = {parameters[0]: value}
            return meant if not _takes(name, schema, only) and _takes(name, schema, meant) else only
    return {} if given in (None, "", []) else read_arguments(RequestedCall(name, given))


def _mended(text: str, parameters: list[str]) -> dict[str, Any] | None:
    """The arguments that a text is with small mistakes; what names other parameters is a text that looks like them."""
    try:
        value = decode_text(text)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) and (value.keys() <= set(parameters) or not parameters) else None


def _takes(name: str, schema: Schema | None, arguments: dict[str, Any]) -> bool:
    """Return whether these are parameters that the function really has, with values that fit."""
    if schema is None or not arguments.keys() <= schema.get("properties", {}).keys():
        return False
    try:
        check_arguments(name, schema, arguments)
    except CallNotAllowed:
        return False
    return True


def _declares(about: Any, value: Any) -> bool:
    """Return whether a value is nothing but what the schema of its parameter says, or what stands for it in an
    example.
    """
    if not isinstance(about, dict):
        return False
    if isinstance(value, dict):
        return bool(value) and all(
            key == "optional" or (key in about and about[key] == one) for key, one in value.items()
        )
    told = " ".join(str(about.get("description", "")).split())
    words = {told, f"{about.get('type')}; {told}"} if told else set()
    return isinstance(value, str) and (
        value in _PLACEHOLDERS or " ".join(value.split()).removesuffix(" (optional)") in words
    )


def _looks_declared(value: Any) -> bool:
    """Return whether a value reads as a JSON Schema, or as those of arguments by their names."""
    if not isinstance(value, dict) or not value:
        return False
    kinds = value.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return (
        any(key.startswith("$") or isinstance(value[key], dict | list) for key in _KEYWORDS & value.keys())
        or all(kind in _TYPES for kind in kinds)
        or all(_looks_declared(one) or (isinstance(one, dict) and "description" in one) for one in value.values())
    )


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
        return _unwrapped(run, last_answer_of(run, reply.content))
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


def _unwrapped(run: Run, said: Any) -> Any:
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
