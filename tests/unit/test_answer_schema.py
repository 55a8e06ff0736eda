"""Output schemas: held against answers, offered as a parameter, strict or not."""

from typing import Any

import pytest

from cadre.spec.answer_schema import as_parameter, check_schema, fitted, is_strict, misfits
from harness.provider_schemas import openai_strict_problems

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "string"}, True),
        (CLOSED, True),
        ({"type": "array", "items": CLOSED}, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({"type": "object"}, False),
        ({"type": "array", "items": {"properties": {"a": {}}}}, False),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object"}}}, False),
        ({"enum": [{"type": "object"}]}, False),
        ({"type": "string", "enum": ["a"]}, True),
        ({"type": "string", "minLength": 1}, False),
        ({"type": "string", "format": "uri"}, False),
        ({"type": "string", "default": "a"}, False),
        ({"type": "array"}, False),
        ({"type": ["object", "null"]}, False),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}, True),
        ({**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "object"}]}}}, False),
        ({**CLOSED, "properties": {"a": {"title": "Anything"}}}, False),
        ({"oneOf": [CLOSED, {"type": "string"}]}, False),
        ({**CLOSED, "properties": {"properties": {"type": "string"}}, "required": ["properties"]}, True),
    ],
)
def test_strict_is_what_lists_and_closes_all(schema: dict[str, Any], strict: bool) -> None:
    whole = as_parameter(schema, "It.")
    assert is_strict(whole) is strict
    assert ([*openai_strict_problems(whole)] == []) is strict
    assert is_strict(schema) is (strict and schema.get("type") == "object")


def test_places_are_named_and_a_long_list_is_cut() -> None:
    schema = {"type": "array", "items": CLOSED}
    assert misfits(schema, [{"a": 1}]) == []
    assert misfits(schema, [{"a": 1}, {"a": "x"}]) == ['answer[1].a: "x" is not of type "integer"']
    lines = misfits(schema, [0] * 30)
    assert len(lines) == 11
    assert lines[-1] == "and 20 more"


def test_definitions_move_to_the_root() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}
    parameter = as_parameter(schema, "It.")
    assert parameter["properties"]["answer"] == {
        "description": "It.",
        "type": "array",
        "items": {"$ref": "#/$defs/n"},
    }
    assert misfits(parameter, {"answer": [1]}) == []
    assert misfits(parameter, {"answer": ["x"]}) == ['answer.answer[0]: "x" is not of type "integer"']


@pytest.mark.parametrize(
    ("schema", "given", "taken"),
    [
        (CLOSED, '{"a": 1}', {"a": 1}),
        (CLOSED, '{"a": "x"}', '{"a": "x"}'),
        (CLOSED, "{", "{"),
        ({"type": "string"}, '"7"', '"7"'),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "[" * 3000, "[" * 3000),
    ],
)
def test_a_text_that_is_the_value_in_json(schema: dict[str, Any], given: str, taken: Any) -> None:
    assert fitted(schema, given) == taken


def test_other_documents_are_not_fetched() -> None:
    with pytest.raises(ValueError, match=r"example\.org"):
        check_schema({"$ref": "https://example.org/x.json"})
