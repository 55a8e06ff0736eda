"""Makes a value that fits a JSON schema: the smallest one that says what it stands for."""

import math
from typing import Any

NULLABLE_IS_NULL_DEPTH = 6
"""From this depth on, a schema that may be null is null: strict schemas recurse that way."""

_FORMATS = {
    "date": "2025-01-01",
    "time": "12:00:00Z",
    "date-time": "2025-01-01T12:00:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example(schema: Any, name: str = "value") -> Any:
    """Return a value for `schema`, which may refer to its own `$defs`. Patterns are not solved."""
    return _example(schema, schema, name, 0)


def _example(schema: Any, root: Any, name: str, depth: int) -> Any:
    if not isinstance(schema, dict):
        return f"example {name}"
    schema = _resolved(schema, root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            rest = {k: v for k, v in schema.items() if k != key}
            return _example(_merged([rest, _branch(schema[key], root, depth)]), root, name, depth)
    return _of_type(_type(schema, depth), schema, root, name, depth)


def _resolved(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """Return the schema with its `$ref` followed and its `allOf` merged in."""
    seen: set[str] = set()
    while isinstance(ref := schema.get("$ref"), str) and ref not in seen:
        seen.add(ref)
        target = _lookup(ref, root)
        schema = _merged([{k: v for k, v in schema.items() if k != "$ref"}, target])
    if parts := schema.get("allOf"):
        rest = {k: v for k, v in schema.items() if k != "allOf"}
        return _merged([rest, *(_resolved(part, root) for part in parts if isinstance(part, dict))])
    return schema


def _lookup(ref: str, root: Any) -> dict[str, Any]:
    target = root
    for part in ref.removeprefix("#").strip("/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        target = target.get(key, {}) if isinstance(target, dict) and key else target
    return target if isinstance(target, dict) else {}


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if key == "properties":
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required":
                merged[key] = [*merged.get(key, []), *value]
            else:
                merged[key] = value
    return merged


def _branch(branches: list[Any], root: Any, depth: int) -> dict[str, Any]:
    known = [_resolved(branch, root) for branch in branches if isinstance(branch, dict)]
    nulls = [branch for branch in known if branch.get("type") == "null"]
    others = [branch for branch in known if branch.get("type") != "null"]
    first = (nulls + others) if depth >= NULLABLE_IS_NULL_DEPTH else (others + nulls)
    return first[0] if first else {}


def _type(schema: dict[str, Any], depth: int) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        return "null" if "null" in kind and (depth >= NULLABLE_IS_NULL_DEPTH or not others) else str(others[0])
    if isinstance(kind, str):
        return kind
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "string"


def _of_type(kind: str, schema: dict[str, Any], root: Any, name: str, depth: int) -> Any:
    match kind:
        case "object":
            return _object(schema, root, depth)
        case "array":
            return _array(schema, root, name, depth)
        case "integer" | "number":
            return _number(schema, whole=kind == "integer")
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return _text(schema, name)


def _object(schema: dict[str, Any], root: Any, depth: int) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    required = dict.fromkeys(schema.get("required") or [])
    return {key: _example(properties.get(key, {}), root, key, depth + 1) for key in required}


def _array(schema: dict[str, Any], root: Any, name: str, depth: int) -> list[Any]:
    fixed = [_example(item, root, name, depth + 1) for item in schema.get("prefixItems") or []]
    wanted = int(schema.get("minItems", 0 if depth >= NULLABLE_IS_NULL_DEPTH else 1))
    items = schema.get("items", {})
    if items is False or wanted <= len(fixed):
        return fixed
    if schema.get("uniqueItems") and isinstance(items, dict) and items.get("enum"):
        return [*fixed, *items["enum"][: wanted - len(fixed)]]
    more = [_example(items, root, name, depth + 1) for _ in range(wanted - len(fixed))]
    if schema.get("uniqueItems"):
        more = [f"{value} {n}" if isinstance(value, str) and n else value for n, value in enumerate(more)]
        more = [value + n if type(value) in (int, float) else value for n, value in enumerate(more)]
    return [*fixed, *more][: schema.get("maxItems", wanted)]


def _number(schema: dict[str, Any], *, whole: bool) -> int | float:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    step = schema.get("multipleOf") or (1 if whole else None)
    if low is None:
        low = 1 if high is None or high > 1 else high - (step or 1)
    value = math.ceil(low / step) * step if step else low
    if value == schema.get("exclusiveMinimum"):
        value = value + step if step else ((value + high) / 2 if high is not None else value + 1)
    return int(value) if whole else value


def _text(schema: dict[str, Any], name: str) -> str:
    text = _FORMATS.get(str(schema.get("format"))) or f"example {name}"
    text = text.ljust(int(schema.get("minLength", 0)), ".")
    return text[: int(schema["maxLength"])] if "maxLength" in schema else text
