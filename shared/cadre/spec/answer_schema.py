"""The JSON Schema that an agent's answers must fit."""

from functools import lru_cache
from typing import Any

import msgspec

Schema = dict[str, Any]

_MAX_LISTED = 10
"""Misfits that are listed for a model; the rest is counted."""

_DEFINITIONS = ("$defs", "definitions")


def check_schema(schema: Schema) -> None:
    """Checks a schema. Raises ValueError with what is wrong; references to other documents are refused."""
    _validator(msgspec.json.encode(schema))


def misfits(schema: Schema, answer: Any, what: str = "answer") -> list[str]:
    """One line for each place where the answer does not fit; [] when it fits. `what` is how it is called."""
    errors = list(_validator(msgspec.json.encode(schema)).iter_errors(answer))
    lines = [f"{what}{_place(error)}: {error.message}" for error in errors[:_MAX_LISTED]]
    if len(errors) > _MAX_LISTED:
        lines.append(f"and {len(errors) - _MAX_LISTED} more")
    return lines


def fitted(schema: Schema, answer: Any) -> Any:
    """The answer; if it is a JSON text and only the value of that text fits, that value."""
    if isinstance(answer, str) and misfits(schema, answer):
        try:
            value = msgspec.json.decode(answer)
        except (ValueError, RecursionError):
            return answer
        return value if not misfits(schema, value) else answer
    return answer


def as_parameter(schema: Schema | None, description: str) -> Schema:
    """The schema of an object with one property `answer` that fits the schema, as the parameters of `final_answer`
    and as a response format, which some endpoints require to be an object."""
    about = {key: value for key, value in (schema or {}).items() if key not in (*_DEFINITIONS, "$schema")}
    whole: Schema = {
        "type": "object",
        "properties": {"answer": {"description": description, **about}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    # References in it begin at the root.
    return whole | {key: (schema or {})[key] for key in _DEFINITIONS if key in (schema or {})}


def is_strict(schema: Any) -> bool:
    """Whether the schema fits the subset of OpenAI's strict mode: each object requires all its properties and allows
    no others, each value has a type, and no keyword is used that the mode lacks."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties", {})
    if not schema.keys() & _SAYS_WHAT or schema.keys() & _BEYOND_STRICT:
        return False
    if schema.get("type") == "object" or properties:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", [])) != set(properties):
            return False
    # Names of properties and values of `enum` and `const` are no schemas.
    inner = [value for key, value in schema.items() if key not in ("properties", *_DEFINITIONS, *_VALUES)]
    named = [schema.get(key, {}) for key in ("properties", *_DEFINITIONS)]
    return is_strict(inner) and all(is_strict(list(part.values())) for part in named)


_SAYS_WHAT = {"type", "properties", "items", "enum", "const", "anyOf", "$ref"}
_BEYOND_STRICT = {"oneOf", "allOf", "not", "if", "dependentRequired", "dependentSchemas", "patternProperties"}

_VALUES = ("enum", "const", "default", "examples", "required")


def _place(error: Any) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    # Imported here: commands that make no agent should not load it.
    import jsonschema_rs

    return jsonschema_rs.validator_for(msgspec.json.decode(schema), offline=True)
