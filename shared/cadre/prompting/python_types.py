"""JSON Schemas as Python type hints (`{"type": ["string", "null"]}` is `str | None`), and a tool or team member in
the Python code that a model writes: its name and its signature."""

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.member_call import call_schema
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
    """Return whether `type_name` says all that the schema does, except for the description and default at its top."""
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
        kinds = schema.get("type") or ("object" if "properties" in schema else "array" if "items" in schema else "")
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


Card = ToolCard | AgentCard

RESERVED = frozenset({"final_answer", "gather", "gathered", "CallError", "GatherError", *dir(builtins)})
"""Names that the sandbox and Python have given a meaning: a tool must not replace `print`."""

LEFT_OUT = "..."
"""Shown as the default of an optional parameter whose schema names none."""


def code_name(name: str) -> str:
    """A name as an identifier: `web-search` becomes `web_search`, `3d` becomes `_3d`, `class` becomes `class_`,
    `print` becomes `print_`. An identifier that is free stays."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    if made[:1].isdigit():
        made = f"_{made}"
    return f"{made}_" if keyword.iskeyword(made) or made in RESERVED else made


def named_in_code(cards: Sequence[Card]) -> dict[str, Card]:
    """All cards by their names in code, in the same order. Of two with the same name in code, the card whose own name
    it is keeps it and the other gets a further underscore, in any order."""
    taken = {card.name for card in cards if code_name(card.name) == card.name}
    made = {name: name for name in taken}
    for name in sorted({card.name for card in cards} - taken):
        free = code_name(name)
        while free in taken:
            free += "_"
        taken.add(free)
        made[name] = free
    return {made[card.name]: card for card in cards}


class Parameter(NamedTuple):
    """A parameter of a tool."""

    name: str
    schema: dict[str, Any]
    """The schema of its value, with a `$ref` resolved."""
    required: bool
    by_name: bool
    """True if it can be given as `name=…`; if not, only as `**{"name": …}`."""


def parameters_of(schema: dict[str, Any]) -> list[Parameter]:
    """The parameters of a tool's input schema, the required ones first, as Python demands."""
    definitions = definitions_of(schema)
    top = resolved(schema, definitions)
    required = set(top.get("required") or ())
    found = [
        Parameter(name, resolved(about, definitions), name in required, _is_parameter_name(name))
        for name, about in (top.get("properties") or {}).items()
    ]
    return sorted(found, key=lambda parameter: not parameter.required)


def signature_of(card: Card) -> str:
    """The signature that a model is shown and by which the sandbox binds its calls.

    Parameters whose names are no Python identifiers (`user-id`, `from`) are gathered in `**others`: such a tool is
    called as `tool(query, **{"user-id": 7})`.
    """
    takes, gives = schemas_of(card)
    returns = type_name(gives, definitions_of(gives)) if gives is not None else "Any"
    return f"({', '.join(_written(takes))}) -> {returns}"


def schemas_of(card: Card) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the JSON Schemas of what a call takes and gives; None: nothing is known of it."""
    if isinstance(card, AgentCard):
        text = {"type": "string"}
        gives = card.output_schema if card.output_schema is not None else text
        return call_schema(card.input_schema), gives
    return card.input_schema, card.output_schema


def _written(schema: dict[str, Any]) -> Iterator[str]:
    definitions = definitions_of(schema)
    parameters = parameters_of(schema)
    named = [parameter for parameter in parameters if parameter.by_name]
    for parameter in named:
        kind = type_name(parameter.schema, definitions)
        default = repr(parameter.schema["default"]) if "default" in parameter.schema else LEFT_OUT
        yield f"{parameter.name}: {kind}" + ("" if parameter.required else f" = {default}")
    further = resolved(schema, definitions).get("additionalProperties")
    if further or len(named) < len(parameters):
        others = "others"
        while any(parameter.name == others for parameter in named):
            others += "_"
        yield f"**{others}"


def _is_parameter_name(name: str) -> bool:
    """Return whether an argument can be given as `name=…`. Python normalises some letters to others (NFKC)."""
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and name != "__debug__"
        and unicodedata.normalize("NFKC", name) == name
    )
