"""JSON Schemas as Python type hints: `{"type": ["string", "null"]}` is `str | None`."""

from collections.abc import Iterator
from typing import Any

from cadre.spec.schema_form import ANY_TYPES

_MAX_DEPTH = 8
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_ANNOTATIONS = {"description", "default", "title"}
_EXPRESSIBLE = {
    "$ref",
    "type",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "items",
    "additionalProperties",
    "nullable",
}


def definitions_of(schema: dict[str, Any]) -> dict[str, Any]:
    """The definitions that `$ref`s in the schema refer to, by name."""
    found: dict[str, Any] = {}
    for key in ("definitions", "$defs"):
        found |= schema.get(key) or {}
    return found


def resolved(schema: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema with its `$ref` replaced by the definition; {} when there is no such definition."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        if "$ref" not in schema:
            return schema
        meant = definitions.get(str(schema["$ref"]).rpartition("/")[2])
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**meant, **beside} if isinstance(meant, dict) else beside
    return {}


def type_name(schema: Any, definitions: dict[str, Any], depth: int = 0) -> str:
    """The type hint of a schema; `Any` for one that is nested too deeply or says nothing."""
    if depth > _MAX_DEPTH:
        return "Any"
    kinds = dict.fromkeys(_kinds(resolved(schema, definitions), definitions, depth + 1))
    if not kinds or "Any" in kinds:
        return "Any"
    return " | ".join([*(kind for kind in kinds if kind != "None"), *(["None"] if "None" in kinds else [])])


def says_all(schema: Any, definitions: dict[str, Any], depth: int = 0) -> bool:
    """Whether `type_name` says all that the schema does, except for the description and default at its top."""
    if depth > _MAX_DEPTH:
        return False
    schema = resolved(schema, definitions)
    if schema.keys() - (_EXPRESSIBLE | _ANNOTATIONS if depth == 0 else _EXPRESSIBLE):
        return False
    if not all(map(_is_literal, _values(schema))):
        return False
    parts = [schema.get("items"), schema.get("additionalProperties"), *_options(schema)]
    return all(says_all(part, definitions, depth + 1) for part in parts if isinstance(part, dict))


def _kinds(schema: dict[str, Any], definitions: dict[str, Any], depth: int) -> Iterator[str]:
    if schema.get("nullable") is True:
        yield "None"
    if values := _values(schema):
        yield from _kinds_of_values(values)
    elif options := _options(schema):
        for option in options:
            yield type_name(option, definitions, depth)
    elif all_of := schema.get("allOf"):
        names = [type_name(part, definitions, depth) for part in all_of]
        yield next((name for name in names if name != "Any"), "Any")
    else:
        kinds = schema.get("type") or (
            "object" if "properties" in schema else "array" if "items" in schema else ""
        )
        if isinstance(kinds, list) and {*kinds} >= {*ANY_TYPES}:
            kinds = "any"
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            yield _kind(kind, schema, definitions, depth)


def _kind(kind: str, schema: dict[str, Any], definitions: dict[str, Any], depth: int) -> str:
    if kind == "array":
        items = [*schema.get("prefixItems", ()), *([schema["items"]] if schema.get("items") else [])]
        inner = dict.fromkeys(type_name(item, definitions, depth) for item in items)
        return f"list[{' | '.join(inner)}]" if inner and "Any" not in inner else "list"
    if kind == "object":
        values = schema.get("additionalProperties")
        inner_name = type_name(values, definitions, depth) if isinstance(values, dict) else "Any"
        return "dict" if inner_name == "Any" or "properties" in schema else f"dict[str, {inner_name}]"
    return _SCALARS.get(kind, "Any")


def _options(schema: dict[str, Any]) -> list[Any]:
    return schema.get("anyOf") or schema.get("oneOf") or []


def _values(schema: dict[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else schema.get("enum") or []


def _is_literal(value: object) -> bool:
    return value is None or isinstance(value, str | int)


def _kinds_of_values(values: list[Any]) -> Iterator[str]:
    named = [value for value in values if value is not None]
    if len(named) < len(values):
        yield "None"
    if named and all(map(_is_literal, named)):
        yield f"Literal[{', '.join(map(repr, named))}]"
    else:
        yield from (type(value).__name__ for value in named)
