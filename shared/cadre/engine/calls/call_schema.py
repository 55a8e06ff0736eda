"""The JSON Schema of one call: a union over the functions that a model may call, for endpoints that hold it to that.

Its root is an object, because OpenAI's API takes nothing else; the reader of calls in text knows this form. What only
explains (descriptions, titles, examples) is left out: the prompt says it, and grammars have no use for it.
"""

from typing import Any

import msgspec

from cadre.spec.names import FINAL_ANSWER
from cadre.spec.schema_form import typed

Schema = dict[str, Any]

_DEFINITIONS = ("$defs", "definitions")
_EXPLAINS = {"description", "title", "examples", "example", "default", "$schema", "$comment", "$id"}
_NAMED = {"properties", "patternProperties", *_DEFINITIONS}
"""Keywords whose value maps names to schemas: their keys are no keywords."""
_VALUES = {"enum", "const", "required"}

ANY_ANSWER: Schema = {"type": ["string", "number", "boolean"]}
"""An answer without an output schema: left open, weak models nest objects without end."""


def call_schema(functions: list[dict[str, Any]]) -> Schema:
    """Return the schema of `{"function": {"name": …, "arguments": {…}}}` for functions of the API.

    Functions that take the same arguments share one branch, and equal definitions are written once.
    """
    definitions: Schema = {}
    union = call_union([one["function"] for one in functions], definitions)
    whole = object_of(function={"anyOf": union} if len(union) > 1 else union[0])
    return whole | ({"$defs": definitions} if definitions else {})


def call_union(functions: list[dict[str, Any]], definitions: Schema, under: str = "arguments") -> list[Schema]:
    """Return the schemas of `{"name": …, under: …}` for functions by `name` and `parameters`, one for all that
    take the same. What they refer to is added to `definitions`."""
    names: dict[bytes, list[str]] = {}
    shapes: dict[bytes, Schema] = {}
    for function in functions:
        shape = schema_at_root(function["name"], function["parameters"], definitions)
        key = msgspec.json.encode(shape, order="sorted")
        names.setdefault(key, []).append(function["name"])
        shapes[key] = shape
    return [object_of(**{"name": _one_of(names[key]), under: shape}) for key, shape in shapes.items()]


def schema_at_root(name: str, parameters: Schema, definitions: Schema) -> Schema:
    """The schema of a function's arguments; its own definitions move to the root, where references look for them."""
    shape = {"type": "object", **typed(_bare(parameters))}
    own = {key: value for place in _DEFINITIONS for key, value in shape.pop(place, {}).items()}
    if name == FINAL_ANSWER and shape.get("properties") == typed({"properties": {"answer": {}}})["properties"]:
        shape["properties"] = {"answer": ANY_ANSWER}
    prefix = name if any(definitions.get(key, value) != value for key, value in own.items()) else ""
    known = {key: f"{prefix}_{key}".lstrip("_") for key in own}
    try:
        definitions |= {known[key]: _referring(value, known) for key, value in own.items()}
        moved: Schema = _referring(shape, known)
    except KeyError:
        # A reference elsewhere, as to the root itself: the arguments are checked when the call is made.
        return {"type": "object"}
    return moved


def _bare(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _inner(key, value, _bare) for key, value in schema.items() if key not in _EXPLAINS}


def _referring(schema: Any, known: dict[str, str]) -> Any:
    """The schema with its references to the definitions' names at the root. Raises KeyError for any other reference."""
    if isinstance(schema, list):
        return [_referring(one, known) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _inner(key, value, lambda one: _referring(one, known)) for key, value in schema.items()}
    if isinstance(target := schema.get("$ref"), str):
        place, _, name = target.rpartition("/")
        if place.removeprefix("#/") not in _DEFINITIONS:
            raise KeyError(target)
        found["$ref"] = f"#/$defs/{known[name]}"
    return found


def _inner(key: str, value: Any, change: Any) -> Any:
    if key in _VALUES:
        return value
    if key in _NAMED and isinstance(value, dict):
        return {name: change(one) for name, one in value.items()}
    return change(value)


def object_of(**properties: Schema) -> Schema:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def _one_of(names: list[str]) -> Schema:
    return {"type": "string", "const": names[0]} if len(names) == 1 else {"type": "string", "enum": names}
