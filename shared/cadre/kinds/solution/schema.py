"""The one JSON Schema of a solution: composed from the output schema of the agent and the schemas of what it may call.

It is kept small, because endpoints compile it and, where they have no schemas, the model reads it: functions that take
the same share a branch with an enum of their names, equal definitions are written once, and descriptions are left to
the prompt.
"""

from typing import Any

from cadre.engine.calls.call_schema import ANY_ANSWER, Schema, call_union, object_of, schema_at_root
from cadre.journal.run import Run
from cadre.kinds.solution.section import ImplicitActivity, solution_of
from cadre.protocol.cards import AgentCard
from cadre.spec.answer_schema import as_parameter
from cadre.spec.member_call import call_schema

_TASK: Schema = {
    "type": "object",
    "properties": {"task": {"type": "string"}},
    "required": ["task"],
    "additionalProperties": False,
}
"""What a member without an `input_schema` is given; free `additional_args` would keep the schema from being strict."""

_NOTHING: Schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
_NULL: Schema = {"type": "null"}


def solution_schema(run: Run) -> Schema:
    """Returns the schema of `{"solution": {"calls": […], "output": …}}` for what is in reach of the run now."""
    assert run.spec is not None
    definitions: Schema = {}
    tools = [
        {"name": tool.name, "parameters": with_all_required(tool.input_schema)} for tool in run.tools.values()
    ]
    members = [{"name": name, "parameters": _member(card)} for name, card in run.members.items()]
    union = call_union([*tools, *members], definitions)
    union += [_implicit(name, one, definitions) for name, one in solution_of(run.spec).implicit.items()]
    calls: Schema = {"type": "array", "items": {"anyOf": union} if len(union) > 1 else object_of()}
    if len(union) == 1:
        calls["items"] = union[0]
    if not union:
        calls["maxItems"] = 0
    output = _output(run.spec.output_schema, definitions)
    whole = object_of(solution=object_of(calls=calls, output=output))
    return whole | ({"$defs": definitions} if definitions else {})


def _member(card: AgentCard) -> Schema:
    return _TASK if card.input_schema is None else with_all_required(call_schema(card.input_schema))


def _implicit(name: str, activity: ImplicitActivity, definitions: Schema) -> Schema:
    return object_of(
        name={"type": "string", "const": name},
        arguments=schema_at_root(name, activity.arguments or _NOTHING, definitions),
        outcome=_moved(f"{name}_outcome", activity.outcome or {"type": "string"}, definitions),
    )


def _output(schema: Schema | None, definitions: Schema) -> Schema:
    """A solution whose calls are still to be made has no output."""
    if schema is None:
        return {"type": [*ANY_ANSWER["type"], "null"]}
    return {"anyOf": [_moved("output", schema, definitions), _NULL]}


def _moved(name: str, schema: Schema, definitions: Schema) -> Schema:
    """Any schema, its definitions moved to the root."""
    whole = schema_at_root(name, as_parameter(schema, ""), definitions)
    found: Schema = whole.get("properties", {}).get("answer", {})
    return found


def with_all_required(schema: Schema) -> Schema:
    """The schema of arguments with each optional one required and allowed to be null, as strict schemas want it."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("additionalProperties") is not False or set(required) == set(properties):
        return schema
    nullable = {
        name: about if name in required or allows_null(about) else {"anyOf": [about, _NULL]}
        for name, about in properties.items()
    }
    return {**schema, "properties": nullable, "required": [*properties]}


def without_nulls(schema: Schema, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that are null in the place of nothing."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name in required or allows_null(properties.get(name, {}))
    }


def allows_null(schema: Schema) -> bool:
    """Whether the schema says that null fits; one that says nothing of types lets it pass."""
    if "anyOf" in schema:
        return any(map(allows_null, schema["anyOf"]))
    kinds = schema.get("type")
    if kinds is None:
        return not schema.keys() & {"$ref", "enum", "const"} or None in schema.get("enum", [])
    return "null" in (kinds if isinstance(kinds, list) else [kinds])
