"""Solutions as a model is asked for them, by one JSON Schema, and as its answers are read.

The schema is composed from the output schema of the agent and the schemas of what it may call. It is kept small,
because endpoints compile it and, where they have no schemas, the model reads it: functions that take the same share
a branch with an enum of their names, equal definitions are written once, and descriptions are left to the prompt.
"""

from typing import Any, NamedTuple

from cadre.engine.answers.json_text import ReadingError, read_arguments, read_object
from cadre.engine.calls.call_check import input_schema
from cadre.engine.calls.call_schema import ANY_ANSWER, Schema, call_union, object_of, schema_at_root
from cadre.engine.calls.calls_in_text import read_call, schemas_of
from cadre.journal.events import RequestedCall
from cadre.journal.run import Run
from cadre.kinds.solution.records import ImplicitActivity, ProposedCall, solution_of
from cadre.protocol.cards import AgentCard
from cadre.spec.answer_schema import as_parameter, misfits
from cadre.spec.member_call import call_schema
from cadre.spec.names import FINAL_ANSWER

_TASK: Schema = {
    "type": "object",
    "properties": {"task": {"type": "string"}},
    "required": ["task"],
    "additionalProperties": False,
}
"""The schema of a member without an `input_schema`; free `additional_args` would keep the schema from being strict."""

_NOTHING: Schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
_NULL: Schema = {"type": "null"}


def solution_schema(run: Run) -> Schema:
    """Return the schema of `{"solution": {"calls": […], "output": …}}` for what is in reach of the run now."""
    assert run.spec is not None
    definitions: Schema = {}
    tools = [{"name": tool.name, "parameters": with_all_required(tool.input_schema)} for tool in run.tools.values()]
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
    """Return whether the schema says that null fits; one that says nothing of types lets it pass."""
    if "anyOf" in schema:
        return any(map(allows_null, schema["anyOf"]))
    kinds = schema.get("type")
    if kinds is None:
        return not schema.keys() & {"$ref", "enum", "const"} or None in schema.get("enum", [])
    return "null" in (kinds if isinstance(kinds, list) else [kinds])


class Solution(NamedTuple):
    """A solution as it was meant."""

    calls: list[ProposedCall]
    output: Any

    @property
    def explicit(self) -> list[ProposedCall]:
        """The calls that a tool or member is to make."""
        return [call for call in self.calls if not call.implicit]


def read_solution(run: Run, content: str, native: list[RequestedCall]) -> Solution:
    """The solution that an answer holds; `native` are calls that it makes through the API all the same.

    Raises ReadingError with what is wrong: no solution, or an implicit call that does not fit its schemas.
    """
    broken = next((one.error for one in native if one.error is not None), None)
    if broken is not None and not content.strip():
        raise ReadingError(broken.message)
    if native and not content.strip():
        found = Solution([ProposedCall(name=one.name, arguments=read_arguments(one)) for one in native], None)
    else:
        found = _solution_in(run, read_object(content, "solution", "calls", "output"))
    last = found.calls[0] if len(found.calls) == 1 else None
    if last is not None and last.name == FINAL_ANSWER and found.output is None:
        return Solution([], last.arguments.get("answer"))
    return Solution([_meant(run, call) for call in found.calls], found.output)


def _solution_in(run: Run, value: dict[str, Any]) -> Solution:
    inner = value.get("solution")
    whole = inner if isinstance(inner, dict) else value
    calls = whole.get("calls") or []
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list):
        raise ReadingError('"calls" must be a list of calls, [] when none is left to make')
    return Solution([_call(run, one, place) for place, one in enumerate(calls, 1)], whole.get("output"))


def _call(run: Run, value: Any, place: int) -> ProposedCall:
    assert run.spec is not None
    implicit, schemas = solution_of(run.spec).implicit, schemas_of(run)
    try:
        call = read_call(value, lambda name: implicit[name].arguments if name in implicit else schemas(name))
    except ReadingError as error:
        raise ReadingError(f"Call {place} of your solution: {error}") from error
    inner = value["function"] if isinstance(value.get("function"), dict) else value
    return ProposedCall(name=call.name, arguments=read_arguments(call), outcome=inner.get("outcome"))


def _meant(run: Run, call: ProposedCall) -> ProposedCall:
    """Return the call in its real form: implicit with its outcome, or explicit without meaningless nulls."""
    assert run.spec is not None
    activity = solution_of(run.spec).implicit.get(call.name)
    if activity is not None:
        _check_implicit(call, activity)
        return ProposedCall(name=call.name, arguments=call.arguments, implicit=True, outcome=call.outcome)
    schema = input_schema(run, call.name)
    arguments = without_nulls(schema, call.arguments) if schema is not None else call.arguments
    return ProposedCall(name=call.name, arguments=arguments)


def _check_implicit(call: ProposedCall, activity: ImplicitActivity) -> None:
    wrong = misfits(activity.arguments, call.arguments) if activity.arguments else []
    if wrong:
        raise ReadingError(f"The arguments of {call.name!r} do not fit: {'; '.join(wrong)}")
    if call.outcome is None:
        raise ReadingError(f"{call.name!r} is run by nobody but you: give its outcome with it")
    wrong = misfits(activity.outcome, call.outcome) if activity.outcome else []
    if wrong:
        raise ReadingError(f"The outcome of {call.name!r} does not fit: {'; '.join(wrong)}")
