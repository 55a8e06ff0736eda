"""A call of a team member: its inputs next to the task, and how its arguments become the task and inputs of a run.

A member without an `input_schema` takes `task` and free `additional_args`. One with a schema takes `task` and the
properties of the schema side by side. Where the schema says more of the object than its properties, the object stays
whole, as `additional_args`.
"""

from collections.abc import Mapping
from typing import Any

from cadre.recent import Recent
from cadre.spec.answer_schema import Schema, misfits
from cadre.spec.schema_form import typed

TASK, ADDITIONAL = "task", "additional_args"

_TASK: Schema = {
    "type": "string",
    "description": "What the team member shall do, with everything it needs to know: it sees nothing else.",
}

ANY_INPUTS: Schema = {
    "type": "object",
    "properties": {
        TASK: _TASK,
        ADDITIONAL: {
            "type": ["object", "null"],
            "description": "Further values that the member gets as named variables.",
            "default": None,
        },
    },
    "required": [TASK],
    "additionalProperties": False,
}
"""The schema of a member whose file says nothing of its inputs."""

_DEFINITIONS = ("$defs", "definitions")
_OF_PROPERTIES = {"type", "properties", "required", "additionalProperties", *_DEFINITIONS}
_ABOUT_ITSELF = {"$schema", "$id", "$comment", "title", "description", "examples", "default"}
_MOST_FORMS = 512
_forms = Recent[int, tuple[Schema, Schema]](_MOST_FORMS)
"""By the identity of the `input_schema`, which is kept with the form, so that no other can take its identity."""


def call_schema(input_schema: Schema | None) -> Schema:
    """Return the JSON Schema of a call's arguments: the same object for the same schema."""
    if input_schema is None:
        return ANY_INPUTS
    known = _forms.get(id(input_schema))
    if known is None:
        known = _forms[id(input_schema)] = (input_schema, typed(_form_of(input_schema)))
    else:
        _forms.move_to_end(id(input_schema))
    return known[1]


def is_side_by_side(input_schema: Schema | None) -> bool:
    """Return whether the inputs are arguments next to the task, each under its own name."""
    if input_schema is None:
        return False
    properties = input_schema.get("properties", {})
    is_plain = input_schema.keys() <= _OF_PROPERTIES | _ABOUT_ITSELF
    return is_plain and bool(properties) and not properties.keys() & {TASK, ADDITIONAL}


def as_declared(input_schema: Schema | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments under the names of the schema where they were written as `additional_args`."""
    given = arguments.get(ADDITIONAL, {})
    if not is_side_by_side(input_schema) or not isinstance(given, dict | None):
        return dict(arguments)
    return {**{name: value for name, value in arguments.items() if name != ADDITIONAL}, **(given or {})}


def arguments_of(input_schema: Schema | None, task: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that hands this task and these inputs over."""
    return as_declared(input_schema, {TASK: task, ADDITIONAL: inputs})


def inputs_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that a call hands over, whichever way it was written."""
    named = {name: value for name, value in arguments.items() if name not in (TASK, ADDITIONAL)}
    return {**named, **(arguments.get(ADDITIONAL) or {})}


def _form_of(input_schema: Schema) -> Schema:
    schema = _with_own_root(input_schema)
    definitions = {key: schema[key] for key in _DEFINITIONS if key in schema}
    if is_side_by_side(input_schema):
        further = {key: schema[key] for key in ("additionalProperties",) if key in schema}
        return {
            "type": "object",
            "properties": {TASK: _TASK, **schema["properties"]},
            "required": [TASK, *schema.get("required", [])],
            **further,
            **definitions,
        }
    about = {key: value for key, value in schema.items() if key not in (*_DEFINITIONS, "$schema", "$id")}
    return {
        "type": "object",
        "properties": {TASK: _TASK, ADDITIONAL: about},
        "required": [TASK, ADDITIONAL] if misfits(input_schema, {}) else [TASK],
        "additionalProperties": False,
        **definitions,
    }


_ROOT = "inputs"


def _with_own_root(schema: Schema) -> Schema:
    """Return the schema with references to its root, or into it, aimed at a definition that is a copy of it."""
    if not any(map(_is_of_root, _references(schema))):
        return schema
    aimed: Schema = _aimed(schema)
    whole = {key: value for key, value in aimed.items() if key not in (*_DEFINITIONS, "$schema", "$id")}
    return {**aimed, "$defs": {**aimed.get("$defs", {}), _ROOT: whole}}


def _is_of_root(reference: str) -> bool:
    return reference.startswith("#") and not reference.startswith(tuple(f"#/{key}/" for key in _DEFINITIONS))


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [one for inner in value.values() for one in _references(inner)]
    return [one for inner in value for one in _references(inner)] if isinstance(value, list) else []


def _aimed(value: Any) -> Any:
    if isinstance(value, list):
        return [_aimed(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: _aimed(one) for key, one in value.items()}
    reference = made.get("$ref")
    if isinstance(reference, str) and _is_of_root(reference):
        made["$ref"] = f"#/$defs/{_ROOT}{reference.removeprefix('#')}"
    return made
