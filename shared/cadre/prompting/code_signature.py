"""A tool or team member in the Python code that a model writes: its name, and its signature.

A signature is `(query: str, limit: int = 10) -> list[str]`.
"""

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cadre.prompting.python_types import definitions_of, resolved, type_name
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.spec.member_call import call_schema

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
    it is keeps it and the other gets a further underscore, whatever their order."""
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
    """Whether it can be given as `name=…`; if not, only as `**{"name": …}`."""


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
    """Whether an argument can be given as `name=…`. Python normalises some letters to others (NFKC)."""
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and name != "__debug__"
        and unicodedata.normalize("NFKC", name) == name
    )
