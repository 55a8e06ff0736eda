"""Tests of what a model answered and was offered, as the GenAI conventions have it: backends drop what does not fit."""

from typing import Any

import msgspec
import pytest

from cadre.journal.arrivals import ModelReplied
from cadre.protocol.usage import Usage
from cadre.telemetry.tracing import names
from cadre.telemetry.tracing.content import MAX_CHARS
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.spans import SpanRecord
from unit.loop.build import ADD, LOOK, SimulatedRun, call


def chat_of(sim: SimulatedRun) -> SpanRecord:
    spans = trace_of(sim.journal(), now=0.0, content=True)
    return next(span for span in spans if span.attributes.get(names.OPERATION) == names.CHAT)


def answer_of(sim: SimulatedRun) -> dict[str, Any]:
    (message,) = msgspec.json.decode(str(chat_of(sim).attributes[names.OUTPUT_MESSAGES]))
    assert set(message) == {"role", "parts", "finish_reason"}
    return dict(message)


@pytest.mark.parametrize(
    ("said", "reason"),
    [("tool_calls", "tool_call"), ("", "tool_call"), ("length", "length"), ("stop", "stop")],
)
def test_calls_have_the_ids_of_their_spans_and_arguments_in_json(said: str, reason: str) -> None:
    sim = SimulatedRun().begin()
    calls = [call("add", a=1, b=2), call("look", at="sky")]
    sim.arrive(ModelReplied(attempt=1, content="I add.", calls=calls, usage=Usage(), finish_reason=said))
    message = answer_of(sim)
    assert (message["role"], message["finish_reason"]) == ("assistant", reason)
    text, add, look = message["parts"]
    assert text == {"type": "text", "content": "I add."}
    assert add == {"type": "tool_call", "id": "r1_1_0", "name": "add", "arguments": {"a": 1, "b": 2}}
    assert (look["id"], look["arguments"]) == ("r1_1_1", {"at": "sky"})
    spans = [s for s in trace_of(sim.journal(), now=0.0) if names.TOOL_CALL in s.attributes]
    assert [span.attributes[names.TOOL_CALL] for span in spans] == ["r1_1_0", "r1_1_1"]


def test_an_answer_in_words_ends_with_a_reason() -> None:
    sim = SimulatedRun().begin()
    sim.say(content="Nothing to do.")
    assert answer_of(sim)["finish_reason"] == "stop"


def test_arguments_that_are_no_json_stay_a_text() -> None:
    sim = SimulatedRun().begin()
    sim.say(msgspec.structs.replace(call("look"), arguments='{"at": '))
    assert answer_of(sim)["parts"][0]["arguments"] == '{"at": '


def test_a_long_answer_is_cut_and_still_json() -> None:
    sim = SimulatedRun().begin()
    sim.say(*(call("look", at="y" * 4_000) for _ in range(9)), content="x" * MAX_CHARS)
    assert len(str(chat_of(sim).attributes[names.OUTPUT_MESSAGES])) <= MAX_CHARS
    parts = answer_of(sim)["parts"]
    assert "characters left out" in parts[0]["content"]
    assert "parts left out here" in parts[-1]["content"]


def test_the_tools_that_were_offered_are_told() -> None:
    sim = SimulatedRun().begin()
    sim.say(call("add", a=1, b=2))
    told = msgspec.json.decode(str(chat_of(sim).attributes[names.TOOL_DEFINITIONS]))
    assert {one["type"] for one in told} == {"function"}
    by_name = {one["name"]: one for one in told}
    assert by_name["add"]["parameters"]["required"] == ADD.input_schema["required"]
    assert by_name["look"]["description"] == LOOK.description
    assert "kid" in by_name
