"""How a tool or a team member reads to a model in a text."""

from __future__ import annotations

import json
from textwrap import indent
from typing import Any

from cadre.messages import AgentCard, ToolCard

MEMBER_INPUTS = {
    "task": {"type": "string", "description": "The whole request, in words."},
    "additional_args": {"type": "object", "description": "Data for it, by name.", "optional": True},
}


def to_tool_calling_prompt(card: ToolCard | AgentCard) -> str:
    """`name: description`, what it takes, what it returns; in prompt files, a filter of this name."""
    if isinstance(card, AgentCard):
        inputs, output = to_json(MEMBER_INPUTS), "string"
    else:
        inputs, output = to_json(_inputs(card.input_schema)), _output(card.output_schema)
    description = indent(card.description.strip(), "  ").lstrip()
    return f"{card.name}: {description}\n  Takes inputs: {inputs}\n  Returns an output of type: {output}"


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _inputs(schema: dict[str, Any]) -> dict[str, Any]:
    required = schema.get("required", [])
    inputs = {
        name: about if name in required or "default" in about else {**about, "optional": True}
        for name, about in schema.get("properties", {}).items()
    }
    return inputs | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _output(schema: dict[str, Any] | None) -> str:
    if schema is None:
        return "any"
    kinds = dict.fromkeys(_kinds(schema, schema.get("$defs", {})))
    is_structured = bool({"properties", "items", "$ref", "anyOf"} & schema.keys())
    return " or ".join(kinds) + (f", as this JSON schema says: {to_json(schema)}" if is_structured else "")


def _kinds(schema: dict[str, Any], definitions: dict[str, Any]) -> list[str]:
    """Names of the JSON types that a schema allows."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return _kinds({k: v for k, v in definitions.get(name, {}).items() if k != "$ref"}, definitions)
    if "anyOf" in schema:
        return [kind for option in schema["anyOf"] for kind in _kinds(option, definitions)]
    kinds = schema.get("type", "any")
    return [kinds] if isinstance(kinds, str) else list(kinds)
