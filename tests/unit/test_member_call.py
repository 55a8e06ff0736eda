"""Tests of what a member's call takes, by its `input_schema`, and which task and inputs its arguments are."""

from typing import Any

import pytest

from cadre.spec.answer_schema import misfits
from cadre.spec.member_call import (
    ANY_INPUTS,
    arguments_of,
    as_declared,
    call_schema,
    inputs_of,
    is_side_by_side,
)

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "nights": {"type": "integer", "default": 1}},
    "required": ["city"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "below": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}
SHARED: dict[str, Any] = {
    "type": "object",
    "properties": {"from": {"$ref": "#/$defs/Place"}, "to": {"$ref": "#/$defs/Place"}},
    "required": ["from"],
    "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}
EITHER: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
}
NAMED_TASK: dict[str, Any] = {
    "type": "object",
    "properties": {"task": {"type": "integer"}},
    "required": ["task"],
}


def test_the_inputs_stand_beside_the_task() -> None:
    schema = call_schema(CITY)
    assert list(schema["properties"]) == ["task", "city", "nights"]
    assert (schema["required"], schema["additionalProperties"]) == (["task", "city"], False)
    assert call_schema(CITY) is schema
    assert call_schema(None) is ANY_INPUTS


@pytest.mark.parametrize("schema", [EITHER, NAMED_TASK, {"type": "object"}, {"type": "object", "maxProperties": 1}])
def test_a_schema_that_says_more_than_properties_holds_for_one_argument(schema: dict[str, Any]) -> None:
    assert not is_side_by_side(schema)
    form = call_schema(schema)
    assert list(form["properties"]) == ["task", "additional_args"]
    assert ("additional_args" in form["required"]) == bool(misfits(schema, {}))


FITTING: list[tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any]]] = [
    (CITY, {"city": "Oslo"}, {"city": 5}),
    (CITY, {"city": "Oslo", "nights": 2}, {"city": "Oslo", "nihgts": 2}),
    (TREE, {"name": "a", "below": [{"name": "b"}]}, {"name": "a", "below": [{"task": "b"}]}),
    (SHARED, {"from": {"x": 1}}, {"from": {"x": "1"}}),
    (EITHER, {"id": 1}, {}),
    (NAMED_TASK, {"task": 5}, {"task": "Go."}),
    (None, {"anything": [1]}, {}),
]


@pytest.mark.parametrize(("schema", "fits", "does_not"), FITTING)
def test_what_fits_the_inputs_fits_the_call_and_comes_back_as_it_was(
    schema: dict[str, Any] | None, fits: dict[str, Any], does_not: dict[str, Any]
) -> None:
    arguments = arguments_of(schema, "Go.", fits)
    assert misfits(call_schema(schema), arguments) == []
    assert (arguments["task"], inputs_of(arguments)) == ("Go.", fits)
    if schema is not None:
        assert misfits(call_schema(schema), arguments_of(schema, "Go.", does_not))


def test_inputs_that_were_written_as_additional_args_are_taken_by_their_names() -> None:
    assert as_declared(CITY, {"task": "Go.", "additional_args": {"city": "Oslo"}}) == {
        "task": "Go.",
        "city": "Oslo",
    }
    assert as_declared(CITY, {"task": "Go.", "city": "Oslo", "additional_args": None}) == {
        "task": "Go.",
        "city": "Oslo",
    }
    assert as_declared(CITY, {"task": "Go.", "additional_args": "data"}) == {
        "task": "Go.",
        "additional_args": "data",
    }
    assert as_declared(EITHER, {"task": "Go.", "additional_args": {"id": 1}})["additional_args"] == {"id": 1}
