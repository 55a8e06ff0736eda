"""Calls are held to the schema of their tool, and to nothing that a schema would have fetched."""

from typing import Any

import pytest

from cadre.engine.calls.call_check import CallNotAllowed, check_arguments

NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def test_all_that_does_not_fit_is_named() -> None:
    check_arguments("add", NUMBER, {"a": 1})
    with pytest.raises(CallNotAllowed, match=r"^Wrong arguments for 'add': .*integer"):
        check_arguments("add", NUMBER, {"a": "one"})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "nonsense"}, '"nonsense" is not valid under any of the schemas'),
        ({"properties": {"a": {"pattern": "("}}}, '"(" is not a "regex"'),
        ({"$ref": "http://127.0.0.1:9/schema"}, "Retrieval is disabled"),
    ],
)
def test_a_wrong_schema_is_told_in_a_line(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(CallNotAllowed) as raised:
        check_arguments("add", schema, {"a": "b"})
    said = str(raised.value)
    assert "'add'" in said
    assert why in said
    assert "\n" not in said
