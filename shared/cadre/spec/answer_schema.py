"""The JSON Schema that an agent's answers must fit: checked, held against answers, offered to models."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

Schema = dict[str, Any]

_MOST_TOLD = 10
"""Places that a model is told of at once: one that is wrong everywhere needs no list of all."""

_DEFINITIONS = ("$defs", "definitions")


def check_schema(schema: Schema) -> None:
    """Raises ValueError saying what is wrong with the schema; references to other documents are refused."""
    _validator(msgspec.json.encode(schema))


def misfits(schema: Schema, answer: Any) -> list[str]:
    """Where the answer does not fit, a line for each place; [] when it does."""
    errors = list(_validator(msgspec.json.encode(schema)).iter_errors(answer))
    lines = [f"{_place(error)}: {error.message}" for error in errors[:_MOST_TOLD]]
    if len(errors) > _MOST_TOLD:
        lines.append(f"and {len(errors) - _MOST_TOLD} more")
    return lines


def fitted(schema: Schema, answer: Any) -> Any:
    """The answer; where only the value that it is the JSON text of fits, that value."""
    if isinstance(answer, str) and misfits(schema, answer):
        try:
            value = msgspec.json.decode(answer)
        except (ValueError, RecursionError):
            return answer
        return value if not misfits(schema, value) else answer
    return answer


def as_parameter(schema: Schema | None, description: str) -> Schema:
    """Schema of an object whose one property `answer` fits the schema: what a function takes, and what a model
    is made to write, for which some endpoints want an object."""
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
    """Whether each object in it lists all its properties as required and allows no others: endpoints that hold a
    model to a schema word by word refuse any other."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties", {})
    if schema.get("type") == "object" or properties:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", [])) != set(properties):
            return False
    # Names of properties and values of `enum` and `const` are no schemas.
    inner = [value for key, value in schema.items() if key not in ("properties", *_DEFINITIONS, *_VALUES)]
    named = [schema.get(key, {}) for key in ("properties", *_DEFINITIONS)]
    return is_strict(inner) and all(is_strict(list(part.values())) for part in named)


_VALUES = ("enum", "const", "default", "examples", "required")


def _place(error: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    return f"answer{path}"


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    # Imported here: a command line that makes no agent should not wait for it.
    import jsonschema_rs

    return jsonschema_rs.validator_for(msgspec.json.decode(schema), offline=True)
