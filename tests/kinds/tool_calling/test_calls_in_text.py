"""Calls that a model writes into its text instead of making them."""

from typing import Any

import msgspec
import pytest

from cadre.engine.answers.json_text import ReadingError
from cadre.engine.calls.calls_in_text import NoCall, read_calls
from cadre.journal import events as ev
from cadre.journal.run import ActionStep
from unit.loop.build import SimulatedRun, call, kinds, only

ADD = ev.RequestedCall("add", {"a": 1, "b": 2})
LOOK = ev.RequestedCall("look", {"at": "}{"})
A = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
WIPE = '{"name": "wipe", "arguments": {}}'
DECLARED = (
    '{"type": "function", "function": {"name": "wipe", "description": "Wipes.", "parameters":'
    ' {"type": "object", "properties": {"disk": {"type": "string"}}}}}'
)
FIND = ev.RequestedCall("find", {"properties": "blue"})
NOTE = ev.RequestedCall("note", {"text": "<think>no</think>"})
L = '{"name": "look", "arguments": {"at": "}{"}}'


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (A, [ADD]),
        (f"I think so.\n```json\n{A}\n```\nWhat next?", [ADD]),
        (f"[{A}, {L}]", [ADD, LOOK]),
        (f"First {A} and then\n{L}.", [ADD, LOOK]),
        (f"{A}{L}", [ADD, LOOK]),
        ('{"id": "1", "type": "function", "function": ' + A + "}", [ADD]),
        ('{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}', [ADD]),
        ('{"tool": "add", "args": {"a": 1, "b": 2}}', [ADD]),
        ('{"name": "add", "arguments": {}}', [ev.RequestedCall("add", {})]),
        ('{"name": "add", "parameters": {"a": 1, "b": 2}}', [ADD]),
        ('{"name": "find", "parameters": {"properties": "blue"}}', [FIND]),
        (f"Sets look like {{1, 2}}, and {{so on}}: {A}", [ADD]),
        (f"{A} {{oops}}", [ADD]),
        (f"{DECLARED}\n{A}", [ADD]),
        ('{"name": "functions.add", "arguments": {"a": 1, "b": 2}}', [ADD]),
        (f"<think>\nShould I {WIPE}? No.\n</think>\n{A}", [ADD]),
        (f"Should I {WIPE}? No.\n</think>\n{A}", [ADD]),
        (f"<thinking>One.</thinking><reasoning>{WIPE}</reasoning>{A}", [ADD]),
        ('{"name": "note", "arguments": {"text": "<think>no</think>"}}', [NOTE]),
    ],
)
def test_calls_are_found_in_the_models_order(text: str, calls: list[ev.RequestedCall]) -> None:
    assert read_calls(text) == calls


@pytest.mark.parametrize(
    ("text", "error", "named"),
    [
        ("", NoCall, "`final_answer`"),
        ("The answer is 3.", NoCall, "`final_answer`"),
        ("}{", NoCall, "`final_answer`"),
        ('{"name": "add", "arguments": {"a": 1}', ReadingError, "JSON"),
        ('{"name": "add"}', NoCall, "'add'"),
        (DECLARED, NoCall, "'wipe'"),
        (f"[{DECLARED}, {DECLARED}]", NoCall, "'wipe'"),
        ('{"name": "wipe", "parameters": {"type": "object"}}', NoCall, "'wipe'"),
        (f"<think>Perhaps {WIPE}", NoCall, "`final_answer`"),
        (f"<think>Perhaps {WIPE}</think>I am done.", NoCall, "`final_answer`"),
        ('{"arguments": {}}', NoCall, '"name"'),
        ('{"name": "add", "arguments": [1]}', ReadingError, "'add'"),
        ('{"name": 3, "arguments": {}}', NoCall, '"name"'),
        ('{"name": "add", "arguments": "{"}', ReadingError, "'add'"),
        (A + '{"name": "look", "arguments": {"at": "\\ud83d"}}', ReadingError, "JSON"),
        (A + '{"name": "look", "arguments": {"at": NaN}}', ReadingError, "JSON"),
        (A + '{"a":' * 3000 + "1" + "}" * 3000, ReadingError, "JSON"),
    ],
)
def test_what_cannot_be_read_is_explained(text: str, error: type[ReadingError], named: str) -> None:
    with pytest.raises(ReadingError) as caught:
        read_calls(text)
    assert type(caught.value) is error
    assert caught.value.info.code == "unreadable-answer"
    assert named in caught.value.info.message
    msgspec.json.encode(caught.value.info)


SCHEMAS: dict[str, dict[str, Any]] = {
    name: {"type": "object", "properties": properties, "required": required}
    for name, properties, required in (
        ("note", {"text": {"type": "string"}}, ["text"]),
        ("count", {"n": {"type": "integer"}}, []),
        ("both", {"text": {"type": "string"}, "n": {"type": "integer"}}, ["text"]),
        ("final_answer", {"answer": {}}, ["answer"]),
    )
}


@pytest.mark.parametrize(
    ("name", "given", "arguments"),
    [
        ("note", '{"text": "one\n\ttwo"}', {"text": "one\n\ttwo"}),
        ("note", r'"{\"text\": \"one\ntwo\"}"', {"text": "one\ntwo"}),
        ("note", '"{\\"text\\": \\"one\n\ttwo\\"}"', {"text": "one\n\ttwo"}),
        ("both", '"{\\"text\\": \\"one\n\ttwo\\", \\"n\\": 2,}"', {"text": "one\n\ttwo", "n": 2}),
        ("note", "\"{'a': 1}\"", {"text": "{'a': 1}"}),
        ("note", '"here"', {"text": "here"}),
        ("note", "5", {"text": 5}),
        ("note", "null", {"text": None}),
        ("count", "5", {"n": 5}),
        ("count", '"5"', {"n": 5}),
        ("count", "null", {}),
        ("final_answer", "null", {"answer": None}),
        ("final_answer", "[1, 2]", {"answer": [1, 2]}),
        ("final_answer", '"3"', {"answer": "3"}),
    ],
)
def test_arguments_are_read_as_they_are_meant(name: str, given: str, arguments: dict[str, object]) -> None:
    (found,) = read_calls(f'{{"name": "{name}", "arguments": {given}}}', SCHEMAS.get)
    assert found == ev.RequestedCall(name, arguments)


def test_native_arguments_with_bare_line_breaks_are_read() -> None:
    asked = ev.RequestedCall("look", '{"at": "one\n\ttwo"}')
    assert only(SimulatedRun().begin().say(asked), ev.ToolCalled).arguments == {"at": "one\n\ttwo"}
    cut = ev.RequestedCall("look", '{"at": "one\n\ttw')
    assert "not valid JSON" in only(SimulatedRun().begin().say(cut), ev.CallRefused).error.message


def test_native_calls_win_over_what_the_text_says() -> None:
    called = only(SimulatedRun().begin().say(call("add", a=5, b=5), content=A), ev.ToolCalled)
    assert called.arguments == {"a": 5, "b": 5}


def test_no_call_at_all_is_the_steps_error_and_the_next_step_begins() -> None:
    sim = SimulatedRun().begin()
    events = sim.say(content="The answer is 3.")
    assert kinds(events) == ["ModelAnswered", "StepFinished", "ModelCalled"]
    assert only(events, ev.StepFinished).error.type == "AgentParsingError"
    assert only(events, ev.ModelCalled).step == 2
    step = sim.run.steps[-1]
    assert isinstance(step, ActionStep)
    assert (step.number, step.content, step.native) == (1, "The answer is 3.", False)


def test_calls_in_text_are_made_like_native_ones() -> None:
    sim = SimulatedRun().begin()
    events = sim.say(content=f"{A} {L}")
    assert [event.call for event in events if isinstance(event, ev.ToolCalled)] == ["r1_1_0", "r1_1_1"]
    assert sim.run.current is not None
    assert not sim.run.current.native


def test_a_final_answer_in_text_ends_the_run() -> None:
    sim = SimulatedRun().begin()
    events = sim.say(content='{"name": "final_answer", "arguments": {"answer": 3}}')
    assert only(events, ev.RunFinished).output == 3
