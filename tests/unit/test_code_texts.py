"""Tools and team members as code sees them: names, signatures and docstrings, which the sandbox binds calls by."""

import ast
import json
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cadre import tool
from cadre.prompting.python_types import code_name, definitions_of, named_in_code, parameters_of, type_name
from cadre.prompting.tool_text import docstring_of, signature_of, to_code_prompt
from cadre.protocol.cards import AgentCard, ToolCard
from cadre_sandbox.jail.functions import DeferredCall, Tool
from cadre_sandbox.wire.signatures import parse
from harness.texts import holds

ANALYST = AgentCard(name="analyst", description="Calculates.")
ADDRESS = {
    "type": "object",
    "properties": {"url": {"type": "string"}, "up": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}},
}


def card(name: str = "t", output: dict[str, Any] | None = None, **schema: Any) -> ToolCard:
    """`definitions` stands for `$defs`."""
    if "definitions" in schema:
        schema["$defs"] = schema.pop("definitions")
    return ToolCard(name=name, description="Does it.", input_schema=schema, output_schema=output)


def bound(of: ToolCard, *args: Any, **kwargs: Any) -> Any:
    """The arguments that the sandbox sends for a call."""

    def call(calls: Sequence[DeferredCall]) -> list[Any]:
        raise AssertionError("`later` calls nothing")

    function = Tool(code_name(of.name), signature_of(of), docstring_of(of), call)
    return function.later(*args, **kwargs).arguments


def test_a_tool_is_a_function_with_its_docstring() -> None:
    @tool
    def search(query: str, limit: int = 5, order: Literal["new", "old"] | None = None) -> dict[str, int]:
        """Finds paragraphs.

        Best ones first.

        Args:
            query: Words.
                Any language.
            order: Which first.
        """
        return {}

    *shown, explained, schema, end = to_code_prompt(search.card).splitlines()
    assert "\n".join(shown) == (
        "def search(query: str, limit: int = 5, order: Literal['new', 'old'] | None = None) -> dict[str, int]:\n"
        '    """Finds paragraphs.\n'
        "\n"
        "    Best ones first.\n"
        "\n"
        "    Args:\n"
        "        query: Words. Any language.\n"
        "        order: Which first.\n"
        "\n"
        "    Returns:"
    )
    assert "JSON schema" in explained
    assert json.loads(schema) == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert end == '    """'


def test_a_member_is_a_function_of_a_task() -> None:
    head, *body = to_code_prompt(ANALYST).splitlines()
    assert head == "def analyst(task: str, additional_args: dict | None = None) -> str:"
    assert body[0] == '    """Calculates.'
    assert [line.split(":")[0] for line in body if line.startswith(" " * 8)][:1] == ["        task"]
    assert parse("analyst", signature_of(ANALYST)).bind(task="Add.").arguments == {"task": "Add."}


def test_a_schema_is_shown_where_the_type_does_not_say_it_all() -> None:
    at = {"$ref": "#/$defs/A", "description": "Where."}
    limit = {"type": "integer", "minimum": 1, "default": 3}
    text = docstring_of(
        card(properties={"at": at, "limit": limit, "tag": {"type": "string"}}, definitions={"A": ADDRESS})
    )
    assert str(json.dumps(ADDRESS)) in text
    assert 'limit: JSON schema: {"type": "integer", "minimum": 1}\n' in text
    (tag,) = (line for line in text.splitlines() if line.strip().startswith("tag: "))
    assert "JSON" not in tag, "its type says it all, but that it is optional"
    assert holds(text, "$defs", str(json.dumps({"A": ADDRESS})))


def test_a_result_of_unknown_form_is_promised_nothing() -> None:
    assert "Structured" not in docstring_of(card(output=None))
    assert signature_of(card(output=None)) == "() -> Any"
    assert signature_of(card(output={"type": "integer"})) == "() -> int"
    assert "Returns" not in docstring_of(card(output={"type": "integer"}))
    structured = {"$ref": "#/$defs/A", "$defs": {"A": ADDRESS}}
    assert signature_of(card(output=structured)) == "() -> dict"
    assert docstring_of(card(output=structured)).endswith(f"JSON schema:\n    {json.dumps(structured)}")


def test_a_description_does_not_end_the_docstring() -> None:
    quoting = ToolCard(name="t", description='Says """hi""".', input_schema={})
    assert ast.parse(to_code_prompt(quoting))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({}, "Any"),
        (True, "Any"),
        ({"type": "number"}, "float"),
        ({"type": ["null", "string", "integer"]}, "str | int | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"type": "array"}, "list"),
        ({"type": "array", "items": {"type": ["number", "null"]}}, "list[float | None]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "list[str | int]"),
        ({"type": "object"}, "dict"),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "dict[str, bool]"),
        ({"properties": {"a": {}}}, "dict"),
        ({"enum": ["a", 1, None]}, "Literal['a', 1] | None"),
        ({"enum": [0.5, 1.5]}, "float"),
        ({"const": "x"}, "Literal['x']"),
        ({"oneOf": [{"type": "string"}, {"type": "string"}, {"$ref": "#/$defs/A"}]}, "str | dict"),
        ({"anyOf": [{"type": "string"}, {}]}, "Any"),
        ({"allOf": [{"description": "x"}, {"type": "integer"}]}, "int"),
        ({"$ref": "#/definitions/B"}, "str"),
        ({"$ref": "#/$defs/nowhere"}, "Any"),
        ({"$ref": "#/$defs/Loop"}, "Any"),
    ],
)
def test_types(schema: Any, says: str) -> None:
    definitions = {
        "$defs": {"A": ADDRESS, "Loop": {"$ref": "#/$defs/Loop"}},
        "definitions": {"B": {"type": "string"}},
    }
    assert type_name(schema, definitions_of(definitions)) == says


def test_a_type_without_end_is_cut() -> None:
    tree = {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    assert type_name(tree, {"Tree": tree}) == "list[list[list[list[list[list[list[list[list]]]]]]]]"


def test_required_parameters_come_first_and_the_rest_may_be_left_out() -> None:
    late = card(
        properties={
            "a": {"type": "integer"},
            "b": {"type": "string"},
            "c": {"type": "null", "default": None},
        },
        required=["b"],
    )
    assert signature_of(late) == "(b: str, a: int = ..., c: None = None) -> Any"
    assert bound(late, "x") == {"b": "x"}
    assert bound(late, "x", 3, c=None) == {"b": "x", "a": 3, "c": None}
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        bound(late, a=3)


def test_parameters_without_a_python_name_are_passed_by_a_dict() -> None:
    odd = card(
        "web-search",
        properties={"query": {"type": "string"}, "user-id": {"type": "integer"}, "from": {"type": "string"}},
        required=["query", "user-id"],
    )
    assert signature_of(odd) == "(query: str, **others) -> Any"
    assert to_code_prompt(odd).startswith("def web_search(query: str, **others)")
    assert '**{"user-id": …}. JSON schema: {"type": "integer"}' in docstring_of(odd)
    assert bound(odd, "moss", **{"user-id": 7, "from": "x"}) == {"query": "moss", "user-id": 7, "from": "x"}


def test_a_tool_that_takes_anything_says_so() -> None:
    free = card(properties={"others": {"type": "string"}}, additionalProperties=True)
    assert signature_of(free) == "(others: str = ..., **others_) -> Any"
    assert bound(free, others="a", others_="b") == {"others": "a", "others_": "b"}


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("search", "search"),
        ("web-search", "web_search"),
        ("3d", "_3d"),
        ("class", "class_"),
        ("print", "print_"),
        ("gather", "gather_"),
        ("None", "None_"),
        ("-", "_"),
    ],
)
def test_names_in_code(name: str, known_as: str) -> None:
    assert code_name(name) == known_as == code_name(known_as)
    assert known_as.isidentifier()


@pytest.mark.parametrize("reverse", [False, True])
def test_who_has_the_name_keeps_it(reverse: bool) -> None:
    names = ["web-search", "web_search", "web_search_", "analyst"]
    cards = [card(name) for name in (names[::-1] if reverse else names)]
    named = named_in_code(cards)
    assert {known_as: one.name for known_as, one in named.items()} == {
        "web_search__": "web-search",
        "web_search": "web_search",
        "web_search_": "web_search_",
        "analyst": "analyst",
    }
    assert list(named.values()) == cards


kinds = st.sampled_from(["string", "integer", "number", "boolean", "null", "any"])
schemas = st.recursive(
    st.one_of(
        st.builds(lambda kind: {"type": kind}, kinds),
        st.builds(lambda values: {"enum": values}, st.lists(st.none() | st.text() | st.integers() | st.floats())),
        st.builds(lambda name: {"$ref": f"#/$defs/{name}"}, st.sampled_from("ABC")),
        st.booleans(),
    ),
    lambda inner: st.one_of(
        st.builds(lambda item: {"type": "array", "items": item}, inner),
        st.builds(lambda item: {"type": "object", "additionalProperties": item}, inner),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner)),
        st.builds(lambda properties: {"properties": properties}, st.dictionaries(st.text(max_size=3), inner)),
    ),
    max_leaves=8,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@settings(max_examples=150)
@given(
    properties=st.dictionaries(st.text(max_size=4) | st.sampled_from(["from", "ﬁ", "a-b"]), schemas, max_size=4),
    definitions=st.dictionaries(st.sampled_from("ABC"), schemas),
    defaults=st.lists(values, max_size=4),
    required=st.booleans(),
)
def test_the_sandbox_reads_every_signature(
    properties: dict[str, Any], definitions: dict[str, Any], defaults: list[Any], required: bool
) -> None:
    for about, default in zip(properties.values(), defaults, strict=False):
        if isinstance(about, dict):
            about["default"] = default
    any_tool = card(
        output={"anyOf": [*properties.values()]},
        properties=properties,
        required=[*properties][:2] if required else [],
        definitions=definitions,
    )
    signature = parse("t", signature_of(any_tool))
    named = [parameter.name for parameter in parameters_of(any_tool.input_schema) if parameter.by_name]
    assert [name for name in signature.parameters if not name.startswith("others")] == named
    assert bound(any_tool, **dict.fromkeys(properties, 1)) == dict.fromkeys(properties, 1)
    assert docstring_of(any_tool).startswith("Does it.")
