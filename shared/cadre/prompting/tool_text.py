"""Tools and team members as text for a model, as a list or as Python functions."""

import json
from textwrap import indent
from typing import Any

from cadre.prompting.python_types import (
    Parameter,
    code_name,
    definitions_of,
    parameters_of,
    says_all,
    schemas_of,
    signature_of,
    type_name,
)
from cadre.protocol.cards import AgentCard, ToolCard

__all__ = [
    "docstring_of",
    "signature_of",
    "to_arguments",
    "to_call",
    "to_code_call",
    "to_code_prompt",
    "to_json",
    "to_listed_prompt",
    "to_short_prompt",
    "to_tool_calling_prompt",
]

_STEP = "    "


def to_tool_calling_prompt(card: ToolCard | AgentCard) -> str:
    """Name, description, inputs and output of a card. Prompt files have it as a filter of the same name."""
    takes, gives = schemas_of(card)
    description = indent(card.description.strip(), "  ").lstrip()
    inputs, output = to_json(_inputs(takes)), _output(gives)
    return f"{card.name}: {description}\n  Takes inputs: {inputs}\n  Returns an output of type: {output}"


def told_with_answer(card: AgentCard) -> str:
    """Return a member's description with what its answer holds, where its card says so."""
    if card.output_schema is None:
        return card.description
    return f"{card.description.strip()}\nIts answer is JSON of this schema: {to_json(card.output_schema)}"


def to_short_prompt(card: ToolCard | AgentCard) -> str:
    """Name and description of a card, and what each argument is in a few words. Small models copy a JSON schema where
    they should fill it in. Prompt files have it as a filter of the same name."""
    takes, _ = schemas_of(card)
    needed = takes.get("required", [])
    words = {name: _in_words(about, name in needed) for name, about in takes.get("properties", {}).items()}
    told = told_with_answer(card) if isinstance(card, AgentCard) else card.description
    return f"{card.name}: {' '.join(told.split())} Arguments: {to_json(words)}"


def to_listed_prompt(card: ToolCard | AgentCard) -> str:
    """Name, description and the JSON schemas of a card's arguments on one line, as SuperAGI lists tools. Prompt files
    have it as a filter of the same name."""
    takes, _ = schemas_of(card)
    told = told_with_answer(card) if isinstance(card, AgentCard) else card.description
    return f'"{card.name}": {" ".join(told.split())}, args json schema: {to_json(_inputs(takes))}'


def to_call(name: str, arguments: dict[str, Any], calls: str) -> str:
    """Return a call as a model is to write it in its text (`calls` is `schema` or `text`). Prompt files have it as a
    filter of the same name."""
    call = {"name": name, "arguments": arguments}
    return to_json({"function": call} if calls == "schema" else call)


def _in_words(about: dict[str, Any], is_needed: bool) -> str:
    kind = about.get("type", "")
    kinds = "" if kind in ("string", "") else f"{' or '.join(kind) if isinstance(kind, list) else kind}; "
    choice = f" one of {', '.join(map(str, about['enum']))};" if about.get("enum") else ""
    text = f"{kinds}{' '.join(str(about.get('description', '')).split())}{choice}".strip(" ;") or "text"
    return text if is_needed else f"{text} (optional)"


def to_code_prompt(card: ToolCard | AgentCard) -> str:
    """The head of a Python function with its docstring. Prompt files have it as a filter of the same name."""
    quotes = '"""'
    doc = docstring_of(card).replace(quotes, "'''")
    body = indent(f"{quotes}{doc}\n{quotes}", _STEP)
    return f"def {code_name(card.name)}{signature_of(card)}:\n{body}"


def to_code_call(card: ToolCard | AgentCard) -> str:
    """Return a call of a card in Python, with values that are made up. Prompt files have it as a filter of the same
    name."""
    values = to_arguments(card)
    odd = [one.name for one in _needed(card) if not one.by_name]
    given = [f"{name}={value!r}" for name, value in values.items() if name not in odd]
    rest = {name: values[name] for name in odd}
    return f"{code_name(card.name)}({', '.join([*given, *([f'**{rest!r}'] if rest else [])])})"


def to_arguments(card: ToolCard | AgentCard) -> dict[str, Any]:
    """Return the needed arguments of a card with values that are made up. Prompt files have it as a filter of the same
    name."""
    return {one.name: _made_up(one.schema) for one in _needed(card)}


def _needed(card: ToolCard | AgentCard) -> list[Parameter]:
    return [one for one in parameters_of(schemas_of(card)[0]) if one.required]


_MADE_UP: dict[str, Any] = {"integer": 3, "number": 3, "boolean": True, "array": [], "object": {}}
"""Example values, by JSON type."""


def _made_up(schema: dict[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    return _MADE_UP.get(kind, "…") if isinstance(kind, str) else "…"


def docstring_of(card: ToolCard | AgentCard) -> str:
    """The description, `Args:` and, where the signature does not say everything, `Returns:`."""
    takes, gives = schemas_of(card)
    args, returns = _args(takes), _returns(gives)
    if isinstance(card, AgentCard) and not returns:
        returns = "The member's report." if card.output_schema is None else "The member's answer."
    sections = [card.description.strip()]
    if args:
        sections.append("Args:\n" + "\n".join(indent(arg, 2 * _STEP).removeprefix(_STEP) for arg in args))
    if returns:
        sections.append("Returns:\n" + indent(returns, _STEP))
    return "\n\n".join(sections)


def to_json(value: object) -> str:
    """The value as JSON in which letters of all scripts stay as they are."""
    return json.dumps(value, ensure_ascii=False)


# --- as code


def _args(schema: dict[str, Any]) -> list[str]:
    definitions = definitions_of(schema)
    args = [arg for parameter in parameters_of(schema) if (arg := _arg(parameter, definitions))]
    if any('"$ref"' in arg for arg in args):
        args.append(f"(The $defs of these schemas: {to_json(definitions)})")
    return args


def _arg(parameter: Parameter, definitions: dict[str, Any]) -> str:
    """The text for one parameter, with its schema where the signature does not say everything; may be empty."""
    parts = [str(parameter.schema.get("description", "")).strip()]
    if not parameter.required and "default" not in parameter.schema:
        parts.append("May be left out.")
    if not parameter.by_name:
        parts.append(f"To be given as **{{{to_json(parameter.name)}: …}}.")
    if not says_all(parameter.schema, definitions) or not parameter.by_name:
        schema = {k: v for k, v in parameter.schema.items() if k not in ("description", "default")}
        parts.append(f"JSON schema: {to_json(schema)}")
    between = "\n" if "\n" in parts[0] else " "
    text = between.join(filter(None, parts))
    return text and f"{parameter.name}: {text}"


def _returns(schema: dict[str, Any] | None) -> str:
    if schema is None:
        return ""
    definitions = definitions_of(schema)
    name = type_name(schema, definitions)
    if says_all(schema, definitions) and not any(kind in name for kind in ("list", "dict", "Any")):
        return ""
    return (
        "Structured output: use its parts at once, there is no need to print it first."
        f" It follows this JSON schema:\n{to_json(schema)}"
    )


# --- as an entry of a list


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
    is_structured = {"properties", "items", "$ref", "anyOf"} & schema.keys()
    structure = f", as this JSON schema says: {to_json(schema)}" if is_structured else ""
    return " or ".join(kinds) + structure


def _kinds(schema: dict[str, Any], definitions: dict[str, Any]) -> list[str]:
    """The names of the JSON types that a schema allows."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return _kinds({k: v for k, v in definitions.get(name, {}).items() if k != "$ref"}, definitions)
    if "anyOf" in schema:
        return [kind for option in schema["anyOf"] for kind in _kinds(option, definitions)]
    kinds = schema.get("type", "any")
    return [kinds] if isinstance(kinds, str) else list(kinds)
