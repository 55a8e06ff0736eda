"""Whole runs of agents whose models write calls as text, through the real client against the scripted model."""

import pytest

from cadre.spec.agent import Limits
from cadre.spec.model import NamedFunction
from cadre.testing import ModelServer
from integration.model_calls import spec_for
from integration.model_runs import played

SCRIPT = """
rules:
  - name: plan
    match: {last: "facts survey|Write a plan"}
    reply: {content: "Add, then answer."}
  - name: add in a schema
    match: {first: held, last: "Now carry out|New task"}
    reply: {content: '{"function": {"name": "add", "arguments": {"a": 2, "b": 40}}}'}
  - name: answer in a schema
    match: {first: held, last: '^Observation:\\nadd: 42$'}
    reply: {content: '{"function": {"name": "final_answer", "arguments": {"answer": {{ number(last) }}}}}'}
  - name: prose
    match: {first: asked, turn: 0}
    reply: {content: I would add them.}
  - name: two calls
    match: {first: asked, turn: 1}
    reply:
      content: |
        {"name": "add", "arguments": {"a": 1, "b": 2}}
        {"name": "add", "arguments": {"a": 3, "b": 4}}
  - name: last word
    match: {first: asked, last: "Answer this task now.*fits this schema.*total"}
    reply: {content: '{"total": 10}'}
"""


@pytest.mark.parametrize("prompts", [None, "short"])
async def test_a_schema_holds_each_answer_to_one_call(server: ModelServer, prompts: str | None) -> None:
    model = spec_for(server, calls="schema")
    run, requests = await played("held to a form", model=model, planning_interval=4, prompts=prompts)
    assert run.result is not None
    assert (run.result.state, run.result.output) == ("success", 42)
    plan, first, second = requests
    assert plan.schema is None
    for request in (first, second):
        assert (request.tools, request.stop) == ([], [])
        assert request.schema is not None
    # What the model has said is what it reads again.
    assert [(one["role"], one["content"]) for one in second.messages[-2:]] == [
        ("assistant", '{"function": {"name": "add", "arguments": {"a": 2, "b": 40}}}'),
        ("user", "Observation:\nadd: 42"),
    ]
    assert '{"function": {"name": "' in second.messages[0]["content"]


@pytest.mark.parametrize("prompts", [None, "short"])
async def test_calls_that_only_the_prompt_asks_for(server: ModelServer, prompts: str | None) -> None:
    total = {"type": "object", "required": ["total"], "properties": {"total": {"type": "integer"}}}
    model, limits = spec_for(server, calls="text"), Limits(max_steps=4)
    run, requests = await played("asked in words", model=model, output_schema=total, prompts=prompts, limits=limits)
    assert run.result is not None
    assert (run.result.state, run.result.output) == ("max_steps_error", {"total": 10})
    assert all(request.tools == [] and request.schema is None for request in requests)
    complaint, observed = (request.messages[-1]["content"] for request in requests[1:3])
    assert '{"name": "add", "arguments": {"a": 0, "b": 0}}' in complaint
    assert observed == "Observation:\nadd: 3\n\nadd: 7"


@pytest.mark.parametrize(("function", "names"), [("look", ["look"]), ("gone", ["add", "look", "kid", "final_answer"])])
async def test_one_function_may_be_chosen(server: ModelServer, function: str, names: list[str]) -> None:
    model = spec_for(server, calls="schema", tool_choice=NamedFunction(function))
    _, requests = await played("held to a form", model=model, tools=["add", "look", "gone"])
    assert [name for name in names if f"'{name}'" in str(requests[0].schema)] == names
    assert ("'add'" in str(requests[0].schema)) == ("add" in names)
