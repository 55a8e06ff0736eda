"""Auto mode: values that fit their schema, every tool once, final_answer last."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cadre.engine.calls.call_check import FINAL_ANSWER_SCHEMA
from cadre.engine.calls.call_schema import call_schema
from cadre.engine.calls.calls_in_text import read_calls
from cadre.tools.example_values import example
from cadre_scripted_model.request import Reply, as_text, read_request
from cadre_scripted_model.script_player import auto_reply
from harness.texts import holds

TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "child": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["name", "child"],
            "additionalProperties": False,
        }
    },
}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": ["null", "string"]},
        {"type": "string", "minLength": 20},
        {"type": "string", "maxLength": 3},
        {"type": "string", "format": "date-time"},
        {"enum": ["a", "b"]},
        {"const": None},
        {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 7}]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"type": "integer"}}}]},
        {"type": "object", "required": ["free"]},
        {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "items": {"enum": ["x", "y", "z"]}, "minItems": 2, "uniqueItems": True},
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": False},
        {"type": "array", "maxItems": 0},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"type": "number", "maximum": -2.5},
        {"type": "integer", "minimum": 3, "multipleOf": 5},
        {"type": "integer", "maximum": 0},
        {"type": "integer", "exclusiveMaximum": 0},
        TREE,
    ],
)
def test_an_example_fits_its_schema(schema: dict[str, Any]) -> None:
    jsonschema_rs.validate(schema, example(schema))


_leaves = st.one_of(
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-9, 9),
        st.integers(0, 9),
    ),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 20),
        st.integers(0, 9),
    ),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"enum": [1, "a"]}, {"type": ["string", "null"]}]),
)


def _objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["a", "b", "c"])
    objects = st.dictionaries(names, inner, max_size=3).map(
        lambda properties: {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
    )
    arrays = st.builds(lambda items, low: {"type": "array", "items": items, "minItems": low}, inner, st.integers(0, 3))
    either = st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches})
    return st.one_of(objects, arrays, either)


@given(st.recursive(_leaves, _objects, max_leaves=8))
def test_an_example_fits_any_composed_schema(schema: dict[str, Any]) -> None:
    jsonschema_rs.validate(schema, example(schema))


def _ask(*messages: dict[str, Any], tools: tuple[str, ...] = (), **body: Any) -> Reply:
    parameters = {"type": "object", "properties": {"answer": {"description": "any"}}, "required": ["answer"]}
    offered = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in tools]
    question = {"role": "user", "content": "Why?"}
    return auto_reply(read_request({"messages": [question, *messages], "tools": offered, **body}))


def _done(*names: str) -> list[dict[str, Any]]:
    calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in names]
    results = [{"role": "tool", "tool_call_id": name, "content": f"{name} said so"} for name in names]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _names(reply: Reply) -> list[str]:
    return [call.name for call in reply.tool_calls]


def test_every_tool_is_called_once_and_final_answer_last() -> None:
    tools = ("final_answer", "a", "b")
    assert _names(_ask(tools=tools)) == ["a", "b"]
    assert _names(_ask(tools=tools, parallel_tool_calls=False)) == ["a"]
    assert _names(_ask(*_done("a"), tools=tools)) == ["b"]
    last = _ask(*_done("a", "b"), tools=tools)
    assert _names(last) == ["final_answer"]
    arguments = last.tool_calls[0].arguments
    assert isinstance(arguments, dict)
    (said,) = arguments.values()
    assert said.startswith("[scripted")
    assert holds(said, "Why?", "a: a said so; b: b said so")


def test_the_tool_choice_is_obeyed() -> None:
    assert _names(_ask(tools=("a",), tool_choice="none")) == []
    chosen = {"type": "function", "function": {"name": "b"}}
    assert _names(_ask(tools=("a", "b"), tool_choice=chosen)) == ["b"]
    assert _names(_ask(*_done("a"), tools=("a",), tool_choice="required")) == ["a"]
    assert _names(_ask(*_done("a"), tools=("a",), tool_choice="auto")) == []


def test_without_tools_it_answers_in_text_or_by_the_schema() -> None:
    said = _ask().content or ""
    assert said.startswith("[scripted")
    assert "Why?" in said
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert json.loads(_ask(response_format=wanted).content or "") == {"n": 1}
    assert json.loads(_ask(response_format={"type": "json_object"}).content or "")["answer"].startswith("[scripted")


def test_calls_under_a_schema_are_made_one_by_one_and_then_answered() -> None:
    """As an agent with `calls: schema` asks."""
    functions = [
        {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}
        for name, parameters in (
            ("add", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
            (
                "look",
                {
                    "type": "object",
                    "properties": {"at": {"$ref": "#/$defs/P"}},
                    "$defs": {"P": {"enum": ["x"]}},
                },
            ),
            ("final_answer", FINAL_ANSWER_SCHEMA),
        )
    ]
    schema = call_schema(functions)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Do it."}]
    made = []
    for _ in functions:
        wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        view = read_request({"messages": messages, "response_format": wanted})
        assert (view.in_text, view.user, view.first) == (True, "Do it.", "Do it.")
        reply = as_text(auto_reply(view))
        assert reply.content is not None
        [call] = read_calls(reply.content)
        assert jsonschema_rs.validator_for(schema).is_valid(json.loads(reply.content))
        made.append(call.name)
        messages += [
            {"role": "assistant", "content": reply.content},
            {"role": "user", "content": f"Observation:\n{call.name}: done {len(made)}"},
        ]
    assert made == ["add", "look", "final_answer"]
    assert view.results == {"add": ["done 1"], "look": ["done 2"]}
    assert view.tool == "done 2"


COUNT_WORDS: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}


def reply_about(question: str) -> Reply:
    """Return the automatic reply to a question where count_words is on offer."""
    count = {"type": "function", "function": {"name": "count_words", "parameters": COUNT_WORDS}}
    messages = [{"role": "user", "content": question}]
    return auto_reply(read_request({"model": "m", "messages": messages, "tools": [count]}))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("How long is 'a'?", "a"),
        ('How long is "a b"?', "a b"),
        ("How long is “a b c”?", "a b c"),
    ],
)
def test_a_tool_is_called_with_the_text_that_the_question_quotes(question: str, text: str) -> None:
    [call] = reply_about(question).tool_calls
    assert call.arguments == {"text": text}


def test_an_apostrophe_quotes_nothing() -> None:
    [call] = reply_about("What's in the dog's bowl that isn't the cat's?").tool_calls
    assert call.arguments == example(COUNT_WORDS)
