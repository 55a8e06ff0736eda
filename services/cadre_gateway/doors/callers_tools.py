"""Functions of the caller: as it describes them, and as a run is offered them."""

from __future__ import annotations

from typing import Any

from cadre.errors import SpecError
from cadre.protocol.cards import AgentCard, ToolCard
from cadre.protocol.messages import CallerTerms
from cadre.spec.answer_schema import check_schema
from cadre.spec.names import FINAL_ANSWER, check_name
from cadre_gateway.requests.problems import invalid

_MAX_TOOLS = 128


def wants_final_call(described: list[dict[str, Any]]) -> bool:
    """Return whether the caller takes the answer as a call of its own `final_answer`, as smolagents does."""
    return any(_is_final(one) for one in described)


def terms_of(described: list[dict[str, Any]], choice: Any, card: AgentCard | None) -> CallerTerms:
    """Return the functions that an agent with this card is to be offered, and whether the caller wants calls of them
    and nothing else. Both protocols' forms are read. Raise a 422 problem."""
    tools = tools_of(described, card)
    chosen: dict[str, Any] = choice if isinstance(choice, dict) else {"type": choice or "auto"}
    allowed: dict[str, Any] = chosen.get("allowed_tools", chosen)
    mode = allowed.get("mode") if chosen.get("type") == "allowed_tools" else chosen.get("type")
    if mode not in ("none", "auto", "required", "function"):
        raise invalid(f"a tool_choice of {choice!r} cannot be used", field="tool_choice")
    if mode == "none":
        return CallerTerms()
    if chosen.get("type") in ("function", "allowed_tools"):
        named = {_name_of(one) for one in allowed.get("tools", [chosen])}
        if unknown := named - {_name_of(one) for one in described}:
            raise invalid(f"tool_choice names {unknown}, which tools lacks", field="tool_choice")
        tools = [tool for tool in tools if tool.name in named]
    elif mode == "required" and not described:
        raise invalid("a required call needs tools", field="tool_choice")
    wants_call = bool(tools) and mode != "auto" and not wants_final_call(described)
    return CallerTerms(tools=tools, ends_with_call=wants_call)


def tools_of(described: list[dict[str, Any]], card: AgentCard | None) -> list[ToolCard]:
    """Return the functions that an agent with this card is to be offered. Both protocols' forms are read: a function's
    fields below `function`, or next to `type`. Raise a 422 problem."""
    if len(described) > _MAX_TOOLS:
        raise invalid(f"at most {_MAX_TOOLS} tools can be offered", field="tools")
    own = {*(card.tools if card is not None else ()), *(card.team if card is not None else ())}
    found: dict[str, ToolCard] = {}
    for index, one in enumerate(described):
        if _is_final(one):
            continue  # the agent has its own, whose answer is sent as a call of this one
        tool = _tool_of(one, f"tools[{index}]")
        if tool.name in own or tool.name in found:
            raise invalid(f"the agent has a {tool.name!r} of its own: name it otherwise", field=f"tools[{index}]")
        found[tool.name] = tool
    return list(found.values())


def _is_final(described: dict[str, Any]) -> bool:
    return _name_of(described) == FINAL_ANSWER


def _name_of(described: Any) -> str:
    """Return the name of a function, in either form; "" where it has none."""
    function = described.get("function", described) if isinstance(described, dict) else None
    return str(function.get("name") or "") if isinstance(function, dict) else ""


def _tool_of(described: dict[str, Any], where: str) -> ToolCard:
    if described.get("type") != "function":
        raise invalid(
            f"a tool of type {described.get('type')!r} cannot be used: the agent has its own tools, and"
            f" your functions are offered to it",
            field=where,
        )
    function = described.get("function", described)
    name = function.get("name") if isinstance(function, dict) else None
    schema = (function.get("parameters") if isinstance(function, dict) else None) or {}
    if not isinstance(name, str) or not isinstance(schema, dict):
        raise invalid("a function has a name and parameters, a JSON Schema", field=where)
    try:
        check_name("function", name)
        check_schema(schema)
    except (SpecError, ValueError) as error:
        raise invalid(f"function {name!r}: {error}", field=where) from error
    return ToolCard(
        name=name,
        description=str(function.get("description") or name),
        input_schema={"type": "object", "properties": {}, **schema},
    )


def schema_of(form: Any, where: str) -> dict[str, Any] | None:
    """Return the JSON Schema that a `response_format` or `text.format` asks for; None for text. Raises a 422
    problem."""
    kind = form.get("type") if isinstance(form, dict) else None
    if form is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    inner = form.get("json_schema", form) if isinstance(form, dict) else {}
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if kind != "json_schema" or not isinstance(schema, dict):
        raise invalid("a format is text, json_object, or json_schema with a schema", field=where)
    try:
        check_schema(schema)
    except ValueError as error:
        raise invalid(f"no JSON Schema: {error}", field=where) from error
    return schema
