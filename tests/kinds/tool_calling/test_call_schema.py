"""The schema of one call: what it lets through, how small it is, and when it is strict."""

from typing import Any

import jsonschema_rs
import pytest

from cadre.engine.calls.call_schema import call_schema
from cadre.engine.calls.calls_in_text import read_calls
from cadre.engine.chat import functions
from cadre.journal.run import Run
from cadre.spec.answer_schema import is_strict
from cadre.spec.member_call import ANY_INPUTS
from unit.loop.build import OFFER, SPEC

ITEM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def function(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "Does.", "parameters": parameters}}


def made(name: str, **arguments: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}}


def fits(schema: dict[str, Any], value: Any) -> bool:
    return jsonschema_rs.validator_for(schema).is_valid(value)


def taking_items(item: dict[str, Any]) -> dict[str, Any]:
    items = {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    return {"type": "object", "properties": {"items": items}, "$defs": {"Item": item}}


def test_each_function_takes_its_own_arguments_and_nothing_else_is_called() -> None:
    run = Run(id="r", tree="r", spec=SPEC, decided_by="tool_calling", tools=OFFER.tools, members=OFFER.members)
    schema = call_schema(functions(run))
    for good in (
        made("add", a=1, b=2),
        made("look", at="home"),
        made("kid", task="Help."),
        made("final_answer", answer=4.5),
    ):
        assert fits(schema, good), good
    for bad in (
        made("add", a=1, b="two"),
        made("add", at="home"),
        made("invented"),
        made("final_answer", answer={"deep": {}}),
        {"name": "add", "arguments": {"a": 1, "b": 2}},
        "add",
    ):
        assert not fits(schema, bad), bad
    assert not is_strict(schema), "a member's additional_args are free"
    run.members = {}
    assert is_strict(call_schema(functions(run)))
    assert schema["type"] == "object", "OpenAI's API takes no other root"


def test_functions_that_take_the_same_share_a_branch() -> None:
    names = ["kid", "aunt", "uncle"]
    schema = call_schema([function(name, {**ANY_INPUTS, "title": name}) for name in names])
    assert schema["properties"]["function"]["properties"]["name"] == {"type": "string", "enum": names}
    assert "description" not in str(schema)


def test_an_argument_may_be_called_like_a_keyword() -> None:
    named = {"type": "object", "properties": {"title": {"type": "string"}, "default": {"enum": ["title"]}}}
    made = call_schema([function("f", named)])["properties"]["function"]["properties"]["arguments"]
    assert made["properties"] == {
        "title": {"type": "string"},
        "default": {"type": "string", "enum": ["title"]},
    }


def test_definitions_are_shared_or_told_apart() -> None:
    other = {"type": "string"}
    same = call_schema([function("a", taking_items(ITEM)), function("b", taking_items(ITEM))])
    assert same["$defs"] == {"Item": ITEM}
    schema = call_schema([function("a", taking_items(ITEM)), function("b", taking_items(other))])
    assert schema["$defs"] == {"Item": ITEM, "b_Item": other}
    assert fits(schema, made("a", items=[{"n": 1}]))
    assert not fits(schema, made("b", items=[{"n": 1}]))
    assert fits(schema, made("b", items=["x"]))


@pytest.mark.parametrize("target", ["#", "#/properties/a"])
def test_a_reference_that_cannot_move_leaves_the_arguments_open(target: str) -> None:
    """They are checked when the call is made, as always."""
    schema = call_schema([function("f", {"type": "object", "properties": {"a": {"$ref": target}}})])
    assert fits(schema, made("f", anything=1))


def test_a_call_of_this_form_is_read() -> None:
    [call] = read_calls('{"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}')
    assert (call.name, call.arguments) == ("add", {"a": 1, "b": 2})
