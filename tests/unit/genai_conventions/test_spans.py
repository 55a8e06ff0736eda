"""The spans of kept journals, of every kind of agent, against OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from cadre.engine.model_request import ChatMessage
from cadre.telemetry.tracing.content import definitions, history, instructions
from cadre.telemetry.tracing.page import trace_of
from cadre.telemetry.tracing.spans import SpanRecord
from journals.kept import VERSIONS, journals, names

HERE = Path(__file__).parent
KNOWN: dict[str, Any] = yaml.safe_load((HERE / "attributes.yaml").read_text())
FORMS: dict[str, Any] = yaml.safe_load((HERE / "messages.yaml").read_text())

OTHERS = {
    "gen_ai.aggregated_usage.input_tokens": "int",
    "gen_ai.aggregated_usage.output_tokens": "int",
    "gen_ai.tool.call.decision.outcome": "string",
}
"""The sums of a run are called so by other makers, because dashboards add up `gen_ai.usage.*`; the outcome of a
decision is proposed for the conventions."""

_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "string[]": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "double": lambda value: isinstance(value, float),
    "boolean": lambda value: isinstance(value, bool),
    "json": lambda value: isinstance(value, str),
}


def problems(name: str, value: Any) -> list[str]:
    """Return what is wrong with one attribute."""
    kind = KNOWN.get(name, OTHERS.get(name))
    if kind is None:
        return [f"{name} is none of the conventions'"]
    if isinstance(kind, list):
        return [] if value in kind else [f"{name}: {value!r} is none of {kind}"]
    if not _IS[kind](value):
        return [f"{name}: {value!r} is no {kind}"]
    if name not in FORMS:
        return []
    schema = jsonschema_rs.validator_for({**FORMS[name], "$defs": FORMS["$defs"]})
    return [f"{name}: {error.message}" for error in schema.iter_errors(json.loads(value))]


def checked(span: SpanRecord) -> set[str]:
    """The attributes of the conventions that the span and its events have; all of them are as they should be."""
    found = {**span.attributes}
    for moment in span.moments:
        found |= moment.attributes
    own = {name: value for name, value in found.items() if name.startswith("gen_ai.")}
    if arguments := own.get("gen_ai.tool.call.arguments"):
        assert isinstance(json.loads(str(arguments)), dict), (span.name, arguments)
    wrong = [problem for name, value in own.items() for problem in problems(name, value)]
    assert not wrong, (span.name, wrong)
    return set(own)


@pytest.mark.parametrize("version", VERSIONS)
def test_spans_are_those_of_the_conventions(version: str) -> None:
    seen: set[str] = set()
    operations: set[Any] = set()
    for name in names(version):
        entries = [one.entry for run in journals(version, name) for one in run]
        for span in trace_of(entries, now=entries[-1].at + 1, content=True):
            seen |= checked(span)
            operations.add(span.attributes.get("gen_ai.operation.name"))
            if span.attributes.get("gen_ai.operation.name") in ("chat", "invoke_agent", "execute_tool"):
                verb = str(span.attributes["gen_ai.operation.name"])
                assert span.name.startswith(verb), span.name
    assert {"chat", "invoke_agent", "execute_tool", "invoke_workflow"} <= operations
    assert {"gen_ai.output.messages", "gen_ai.usage.input_tokens", "gen_ai.tool.call.id"} <= seen


def test_what_a_model_reads_has_the_form_of_the_conventions() -> None:
    call = {"id": "run_1_0", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    elsewhere = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    messages: list[ChatMessage] = [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture, elsewhere]},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "run_1_0", "content": "A rock."},
    ]
    functions = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    for most in (100_000, 600):
        assert not problems("gen_ai.input.messages", history(messages, most))
        assert not problems("gen_ai.tool.definitions", definitions(functions, most))
    assert not problems("gen_ai.system_instructions", instructions({"role": "system", "content": "Be kind."}, 600))


def test_what_is_wrong_is_seen() -> None:
    assert problems("gen_ai.agent.colour", "red") == ["gen_ai.agent.colour is none of the conventions'"]
    assert problems("gen_ai.operation.name", "recall")
    assert problems("gen_ai.usage.input_tokens", "12")
    assert problems("gen_ai.output.messages", '[{"role":"assistant","parts":[]}]')
    assert problems("gen_ai.output.messages", '[{"role":"assistant","parts":[{"type":"text"}],"finish_reason":"stop"}]')
    assert problems("gen_ai.output.messages", '[{"role":"assistant","parts":[],"finish_reason":"tool_calls"}]')
