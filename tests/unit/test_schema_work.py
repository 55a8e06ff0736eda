"""Checks against JSON Schemas end after bounded work, for any schema and any value."""

from typing import Any

import pytest

from cadre.spec.answer_schema import SchemaCheck, TooMuchToCheck, misfits

Schema = dict[str, Any]


def doubling(levels: int) -> Schema:
    """A schema that tries twice as much at each level."""
    definitions = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": {"type": "integer"}}}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


CHOICES: Schema = {"items": {"anyOf": [{"properties": {"a": {"const": i}}, "required": ["a"]} for i in range(100)]}}
TREE: Schema = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "left": {"$ref": "#/$defs/node"},
                "right": {"$ref": "#/$defs/node"},
            },
            "required": ["value"],
        }
    },
    "$ref": "#/$defs/node",
}
ANY_JSON: Schema = {
    "anyOf": [
        {"type": ["string", "number", "null", "boolean"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "object", "additionalProperties": {"$ref": "#"}},
    ]
}


def tree(levels: int, value: Any = 1) -> dict[str, Any]:
    return {"value": value, **({"left": tree(levels - 1), "right": tree(levels - 1)} if levels else {})}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling(40), 5),
        ({"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}, nested(60)),
        ({"$id": "http://x/", "allOf": [{"items": {"$ref": "http://x/"}}] * 2}, nested(60)),
        (CHOICES, [{"a": 1000}] * 200_000),
        ({"items": {"enum": [f"value {i}" for i in range(20_000)]}}, ["value"] * 200_000),
    ],
    ids=["references", "recursion", "another reference", "choices", "enumeration"],
)
def test_what_would_take_too_long_is_refused(schema: Schema, value: Any) -> None:
    with pytest.raises(TooMuchToCheck):
        SchemaCheck(schema).errors(value)
    assert misfits(schema, value) != []


@pytest.mark.parametrize(
    ("schema", "fitting", "wrong"),
    [
        (doubling(12), 5, "5"),
        (TREE, tree(8), tree(8, "one")),
        (ANY_JSON, tree(9), {"a": [1, {"b": object}]}),
        (CHOICES, [{"a": 99}] * 900, [{"a": 100}]),
        ({"items": {"type": "integer"}}, [1] * 100_000, ["a"] * 3),
        ({"pattern": "^(a+)+$"}, "a" * 5_000, "a" * 5_000 + "b"),
    ],
    ids=["references", "tree", "any JSON", "choices", "long list", "pattern"],
)
def test_what_people_have_is_checked_whole(schema: Schema, fitting: Any, wrong: Any) -> None:
    assert SchemaCheck(schema).errors(fitting) == []
    if schema is not ANY_JSON:
        assert SchemaCheck(schema).errors(wrong)


def test_of_very_many_errors_one_is_reported() -> None:
    """Each is made with everything that was tried for it, which took most of a minute for a long list."""
    wrong = [{"a": 1000, "b": i} for i in range(4_000)]
    assert len(SchemaCheck(CHOICES).errors(wrong)) == 1
    assert len(SchemaCheck(CHOICES).errors(wrong[:20])) == 20
