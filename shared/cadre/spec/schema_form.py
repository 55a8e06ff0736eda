"""JSON Schemas in the form that model endpoints take: types are said, definitions are few, values fit by conversion."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cadre.spec.answer_schema import Schema, misfits

ANY_TYPES = ["string", "number", "boolean", "object", "array", "null"]
"""The types of a value of which nothing is said."""

_DEFINITIONS = ("$defs", "definitions")
_NAMED = ("properties", "patternProperties", "dependentSchemas", *_DEFINITIONS)
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_INNER = ("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else")
_SAYS_TYPE = ("type", "anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "not", "if")

_CHOICES = ("anyOf", "oneOf", "allOf", "not", "if")

_SHORT_BYTES = 400
"""A definition of this size is written out wherever it is used; a longer one where it is used once."""

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MOST_LEVELS = 100
_MOST_TRIED = 5000
"""Options of unions that are tried at most. Where a schema may refer to itself, one counts for many: it is checked with
all that is below it, and these multiply."""
_COUNTS_FOR = 1000


def typed(schema: Any) -> Any:
    """Return the schema with a type for each property and each list of choices, and with items for each array; one that
    is nested too deeply for that as it is."""
    try:
        return _typed(schema) if isinstance(schema, dict) else schema
    except RecursionError:
        return schema


def _typed(schema: Schema, *, is_property: bool = False) -> Schema:
    made = _mapped(schema, _typed, properties=lambda one: _typed(one, is_property=True))
    parts = made.get("allOf")
    if (
        isinstance(parts, list)
        and len(parts) == 1
        and not (parts[0].keys() & made.keys())
        # Of the arguments as a whole what a server gave is kept; a property must say its type.
        and (is_property or not parts[0].keys() & set(_CHOICES))
    ):
        made = {**parts[0], **{key: value for key, value in made.items() if key != "allOf"}}
    if not made.keys() & set(_SAYS_TYPE):
        said = _types_said(made) or (ANY_TYPES if is_property else [])
        if said:
            made["type"] = said[0] if len(said) == 1 else said
    kinds = made.get("type")
    if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
        made = _with_items(made)
    return {"type": made["type"], **made} if "type" in made else made


def _types_said(schema: Schema) -> list[str]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        return [*dict.fromkeys(map(_type_of, values))]
    if "properties" in schema:
        return ["object"]
    return ["array"] if "items" in schema or "prefixItems" in schema else []


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return kinds.get(type(value), "object")


def _with_items(schema: Schema) -> Schema:
    first = schema.get("prefixItems")
    if not first:
        return {**schema, "items": schema.get("items", {})}
    if isinstance(schema.get("items"), dict) or schema.get("maxItems") != len(first):
        return schema
    bare = [{key: value for key, value in one.items() if key != "default"} for one in first]
    if all(one == bare[0] for one in bare):
        rest = {key: value for key, value in schema.items() if key != "prefixItems"}
        return {**rest, "items": bare[0]}
    return {key: value for key, value in schema.items() if key != "items"}


def offered(schema: Schema, orders: list[list[Any]], name: str) -> Schema:
    """Return the schema of a Python type as models are shown it.

    Args:
        orders: Values of enumerations in the order in which they are declared.
        name: The name of the type, which is no title.
    """
    definitions = {key: one for place in _DEFINITIONS for key, one in schema.get(place, {}).items()}
    root = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
    definitions = {key: _without_title(one, key) for key, one in definitions.items()}
    made = _Inlined(definitions).root(_without_title(root, name))
    result: Schema = typed(_mapped(made, lambda one: _ordered(one, orders)))
    return _ordered(result, orders)


def _without_title(schema: Schema, name: str) -> Schema:
    title = re.sub(r"[^a-zA-Z0-9.\-_]", "_", str(schema.get("title", "")))
    return {key: value for key, value in schema.items() if key != "title" or not name.endswith(title)}


def _ordered(schema: Schema, orders: list[list[Any]]) -> Schema:
    schema = {key: value for key, value in schema.items() if key != "discriminator"}
    schema = _mapped(schema, lambda one: _ordered(one, orders))
    values = schema.get("enum")
    if isinstance(values, list):
        same = (one for one in orders if len(one) == len(values) and all(_has(one, each) for each in values))
        schema["enum"] = next(same, values)
    return schema


def _has(values: list[Any], value: Any) -> bool:
    return any(type(one) is type(value) and one == value for one in values)


class _Inlined:
    """Definitions, written out where they are used, but for those that refer to themselves or are long and shared."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._all = definitions
        self._kept: dict[str, Schema] = {}
        self._uses: dict[str, int] = {}

    def root(self, schema: Schema) -> Schema:
        """Return the schema with the definitions that it still needs."""
        for one in (schema, *self._all.values()):
            for name in _references(one):
                self._uses[name] = self._uses.get(name, 0) + 1
        made = self._inline(schema)
        return {**made, **({"$defs": self._kept} if self._kept else {})}

    def _inline(self, schema: Schema) -> Schema:
        name = _referred(schema)
        if name is None or name not in self._all:
            return _mapped(schema, self._inline)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        own = self._all[name]
        if self._is_recursive(name) or (self._uses.get(name, 0) > 1 and len(msgspec.json.encode(own)) > _SHORT_BYTES):
            if name not in self._kept:
                self._kept[name] = {}
                self._kept[name] = _mapped(own, self._inline)
            return {"$ref": f"#/$defs/{name}", **beside}
        return self._inline({**own, **beside}) if "$ref" in own else {**_mapped(own, self._inline), **beside}

    def _is_recursive(self, name: str) -> bool:
        seen: set[str] = set()
        waiting = [*_references(self._all[name])]
        while waiting:
            one = waiting.pop()
            if one == name:
                return True
            if one not in seen and one in self._all:
                seen.add(one)
                waiting += _references(self._all[one])
        return False


def _referred(schema: Schema) -> str | None:
    target = schema.get("$ref")
    place, _, name = target.rpartition("/") if isinstance(target, str) else ("", "", "")
    return name if place.removeprefix("#/") in _DEFINITIONS else None


def _references(schema: Schema) -> list[str]:
    found = [name for name in [_referred(schema)] if name is not None]

    def look(one: Schema) -> Schema:
        found.extend(_references(one))
        return one

    _mapped(schema, look)
    return found


def _mapped(schema: Schema, change: Any, properties: Any = None) -> Schema:
    """Return the schema with a change made to each schema directly within it."""
    made: Schema = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            each = properties if properties is not None and key == "properties" else change
            made[key] = {name: each(one) if isinstance(one, dict) else one for name, one in value.items()}
        elif key in _LISTED and isinstance(value, list):
            made[key] = [change(one) if isinstance(one, dict) else one for one in value]
        elif key in _INNER and isinstance(value, dict):
            made[key] = change(value)
        else:
            made[key] = value
    return made


# --- values


def fitting(schema: Schema, value: Any) -> Any:
    """Return the value, with what does not fit converted at any depth where that loses nothing: texts that say numbers,
    booleans or JSON, and numbers and booleans where texts are wanted. What cannot be converted stays as it is."""
    return value if not misfits(schema, value) else _fitting(schema, schema, value, 0, [_MOST_TRIED])


def _fitting(schema: Any, root: Schema, value: Any, level: int, left: list[int]) -> Any:
    if not isinstance(schema, dict) or level > _MOST_LEVELS:
        return value
    name = _referred(schema)
    if name is not None:
        definitions = {key: one for place in _DEFINITIONS for key, one in root.get(place, {}).items()}
        return _fitting(definitions.get(name), root, value, level + 1, left)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return _fitting_option(schema[key], root, value, level, left)
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    value = next((one for kind in kinds for one in _as_type(kind, value)), value)
    if isinstance(value, dict):
        named, others = schema.get("properties", {}), schema.get("additionalProperties")
        return {key: _fitting(named.get(key, others), root, one, level + 1, left) for key, one in value.items()}
    if isinstance(value, list):
        first, rest = schema.get("prefixItems", []), schema.get("items")
        inner = [*first, *[rest] * max(0, len(value) - len(first))]
        return [_fitting(one, root, item, level + 1, left) for one, item in zip(inner, value, strict=False)] + value[
            len(inner) :
        ]
    return value


def _fitting_option(options: list[Any], root: Schema, value: Any, level: int, left: list[int]) -> Any:
    """Return the value as the first of the options has it that it can be converted to."""
    whole = {place: root[place] for place in _DEFINITIONS if place in root}
    for option in options:
        left[0] -= _COUNTS_FOR if whole else 1
        if left[0] < 0:
            return value
        fit = _fitting(option, root, value, level + 1, left)
        if isinstance(option, dict) and not misfits({**option, **whole}, fit):
            return fit
    return value


def _as_type(kind: str, value: Any) -> Iterator[Any]:
    """Yield the value if it is of that type, or its conversion to that type."""
    match kind, value:
        case "string", bool() | int() | float():
            yield json.dumps(value)
        case "integer" | "number" | "boolean" | "array" | "object", str():
            said: Any = None
            if kind == "boolean":
                said = {"true": True, "false": False}.get(value.strip().lower())
            elif kind in ("integer", "number"):
                said = _number(value.strip())
                said = said if kind == "number" or not isinstance(said, float) or said.is_integer() else None
            else:
                said = _structure(value)
                said = said if isinstance(said, list if kind == "array" else dict) else None
            if said is not None:
                yield said
        case "string", str():
            yield value
        case "null", None:
            yield None
        case "array", list():
            yield value
        case "object", dict():
            yield value
        case "boolean", bool():
            yield value
        case "number" | "integer", int() | float() if not isinstance(value, bool):
            yield value


def _number(text: str) -> int | float | None:
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:  # more digits than Python reads
        return None


def _structure(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
