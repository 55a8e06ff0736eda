"""The Python signature of a tool or team member: `(query: str, limit: int = 10) -> list[str]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cadre.prompting.code_names import Card, is_parameter_name
from cadre.prompting.python_types import definitions_of, resolved, type_name
from cadre.protocol.cards import AgentCard

MEMBER_SIGNATURE = "(task: str, additional_args: dict | None = None) -> str"

LEFT_OUT = "..."
"""Shown as the default of an optional parameter whose schema names none."""


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
        Parameter(name, resolved(about, definitions), name in required, is_parameter_name(name))
        for name, about in (top.get("properties") or {}).items()
    ]
    return sorted(found, key=lambda parameter: not parameter.required)


def signature_of(card: Card) -> str:
    """The signature that a model is shown and by which the sandbox binds its calls.

    Parameters whose names are no Python identifiers (`user-id`, `from`) are gathered in `**others`: such a tool is
    called as `tool(query, **{"user-id": 7})`.
    """
    if isinstance(card, AgentCard):
        return MEMBER_SIGNATURE
    returns = "Any"
    if card.output_schema is not None:
        returns = type_name(card.output_schema, definitions_of(card.output_schema))
    return f"({', '.join(_written(card.input_schema))}) -> {returns}"


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
