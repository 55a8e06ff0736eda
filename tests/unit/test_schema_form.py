"""The form of schemas that others wrote, and values converted to a schema."""

from typing import Any

import pytest

from cadre.spec.answer_schema import misfits
from cadre.spec.schema_form import ANY_TYPES, fitting, typed
from harness.provider_schemas import openai_function_problems


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"enum": ["b", "a"]}, {"type": "string", "enum": ["b", "a"]}),
        ({"enum": ["a", 1, None]}, {"type": ["string", "integer", "null"], "enum": ["a", 1, None]}),
        ({"const": 5}, {"type": "integer", "const": 5}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"items": {"const": True}}, {"type": "array", "items": {"type": "boolean", "const": True}}),
        ({"allOf": [{"type": "string"}], "title": "T"}, {"type": "string", "title": "T"}),
        ({"allOf": [{"anyOf": [{"type": "string"}]}]}, {"anyOf": [{"type": "string"}]}),
        ({"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}),
        ({"description": "Any."}, {"description": "Any.", "type": ANY_TYPES, "items": {}}),
        (
            {
                "type": "array",
                "prefixItems": [{"type": "string"}] * 2,
                "minItems": 2,
                "maxItems": 2,
                "items": False,
            },
            {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "string"}},
        ),
    ],
)
def test_a_property_of_a_foreign_schema_gets_its_type(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    made = typed({"properties": {"enum": schema}})
    assert made["type"] == "object"
    assert made["properties"]["enum"] == expected
    assert [*openai_function_problems(made)] == []


def test_a_choice_among_all_arguments_keeps_the_form_that_a_server_gave_it() -> None:
    schema = {"type": "object", "allOf": [{"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}]}
    assert typed(schema) == schema


def test_a_schema_of_any_depth_is_no_failure() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    assert typed(deep) is deep


def test_conversion_ends_where_unions_refer_to_themselves() -> None:
    ref = {"$ref": "#/$defs/n"}
    node = {
        "anyOf": [{"type": "object", "properties": {"a": ref, "b": {"type": kind}}} for kind in ("integer", "null")]
    }
    schema = {"$defs": {"n": node}, "$ref": "#/$defs/n"}
    value: dict[str, Any] = {"b": "no number"}
    for _ in range(60):
        value = {"a": value, "b": "1"}
    assert misfits(schema, value)
    assert fitting(schema, value)["b"] == "1"
    assert fitting(schema, {"a": {"b": "2"}, "b": "1"}) == {"a": {"b": 2}, "b": 1}
