"""Checks of schemas as model endpoints make them: OpenAI for functions and in strict mode, Gemini for functions."""

from collections.abc import Iterator
from typing import Any

_OPENAI_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
_OPENAI_STRICT = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"pattern", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "boolean": set(),
    "null": set(),
}
_ALWAYS = {"type", "title", "description", "enum", "const", "anyOf", "$defs", "definitions"}

_GEMINI = {
    *("type", "title", "description", "format", "enum", "anyOf", "nullable", "default"),
    *("properties", "required", "additionalProperties", "propertyOrdering", "items", "prefixItems"),
    *("minItems", "maxItems", "uniqueItems", "minLength", "maxLength", "pattern", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "const", "$ref", "$defs", "examples"),
}


def openai_function_problems(schema: Any, at: str = "") -> Iterator[str]:
    """Yield what OpenAI refuses in the parameters of a function that is not strict."""
    for place, one, is_property in _walk(schema, at):
        kinds = _kinds(one)
        if is_property and not one.keys() & {"type", "anyOf", "$ref"}:
            yield f"{place}: no type"
        if "array" in kinds and not ({"items", "prefixItems"} & one.keys()):
            yield f"{place}: array schema missing items"
        if one.get("items") is False:
            yield f"{place}: False is no schema"


def openai_strict_problems(schema: Any) -> Iterator[str]:
    """Yield what OpenAI refuses in a schema that is sent as strict."""
    if schema.get("type") != "object" or "anyOf" in schema:
        yield "the root is no object"
    properties = 0
    for place, one, _ in _walk(schema, ""):
        if "$ref" in one:
            if one.keys() - {"$ref"}:
                yield f"{place}: $ref cannot have keywords {sorted(one.keys() - {'$ref'})}"
            continue
        kinds = _kinds(one)
        if not kinds and "anyOf" not in one:
            yield f"{place}: schema must have a 'type' key"
        allowed = _ALWAYS.union(*(_OPENAI_STRICT[kind] for kind in kinds))
        yield from (f"{place}: {key!r} is not permitted" for key in one.keys() - allowed)
        if one.get("format", "date") not in _OPENAI_FORMATS:
            yield f"{place}: {one['format']!r} is not a valid format"
        if "array" in kinds and "items" not in one:
            yield f"{place}: array schema missing items"
        if "object" in kinds:
            named = one.get("properties", {})
            properties += len(named)
            if one.get("additionalProperties") is not False:
                yield f"{place}: additionalProperties must be false"
            if sorted(one.get("required", [])) != sorted(named):
                yield f"{place}: 'required' must list every property"
    if properties > 5000:
        yield "more than 5000 properties"


def gemini_problems(schema: Any) -> Iterator[str]:
    """Yield what Gemini refuses in the JSON schema of a function's parameters."""
    for place, one, is_property in _walk(schema, ""):
        yield from (f"{place}: unknown name {key!r}" for key in one.keys() - _GEMINI)
        if is_property and not one.keys() & {"type", "anyOf", "$ref"}:
            yield f"{place}: type must be specified"
        if "array" in _kinds(one) and not ({"items", "prefixItems"} & one.keys()):
            yield f"{place}.items: missing field"
        unknown = [name for name in one.get("required", []) if name not in one.get("properties", {})]
        yield from (f"{place}: required {name} is not defined" for name in unknown)


def _kinds(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def _walk(schema: Any, at: str, *, is_property: bool = False) -> Iterator[tuple[str, dict[str, Any], bool]]:
    if not isinstance(schema, dict):
        return
    yield at, schema, is_property
    for key in ("properties", "$defs", "definitions"):
        for name, one in schema.get(key, {}).items():
            yield from _walk(one, f"{at}.{name}", is_property=key == "properties")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for number, one in enumerate(schema.get(key, ())):
            yield from _walk(one, f"{at}/{key}[{number}]")
    for key in ("items", "additionalProperties", "not", "propertyNames"):
        yield from _walk(schema.get(key), f"{at}/{key}")
