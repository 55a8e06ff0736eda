"""Fallbacks through the real client: the next endpoint is asked, in the form that its model takes."""

import socket

import msgspec

from cadre.journal.run import ActionStep
from cadre.spec.model import ModelSpec
from cadre.testing import ModelServer
from harness.texts import holds
from integration.model_runs import played
from unit.loop.build import SPEC

SCRIPT = """
rules:
  - {name: refused, match: {model: ^first$}, reply: {error: {status: 401, message: no such key}}}
  - {name: busy, match: {model: ^busy$}, reply: {error: {status: 503, message: too busy}}}
  - name: adds
    match: {model: ^second$, turn: 0}
    reply: {tool_calls: [{name: add, arguments: {a: 2, b: 40}}]}
  - name: answers
    match: {model: ^second$, tool: "42"}
    reply: {tool_calls: [{name: final_answer, arguments: {answer: "{{ body.temperature }}"}}]}
  - name: in text
    match: {model: ^plain$}
    reply: {content: '{"name": "final_answer", "arguments": {"answer": "{{ images }}, {{ tools | length }}"}}'}
"""


async def test_the_next_endpoint_is_asked_and_stays(server: ModelServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    second = ModelSpec(name="second", url=server.url, temperature=0.5)
    models = ModelSpec(name="first", url=nobody, retries=1, fallbacks=[ModelSpec(name="first", url=server.url), second])
    run, requests = await played("anything", model=models)
    assert run.result is not None
    assert (run.result.state, run.result.output) == ("success", 0.5)
    assert [request.fallback for request in requests] == [0, 0, 1, 2, 2]
    assert [line["model"] for line in server.journal()] == ["first", "second", "second"]
    [step] = [step for step in run.steps if isinstance(step, ActionStep) and step.asked]
    assert step.native


async def test_a_fallback_is_asked_in_its_own_form(server: ModelServer) -> None:
    """It writes calls as text and sees no images; the first model would have done otherwise."""
    plain = ModelSpec(name="plain", url=server.url, calls="text", vision=False)
    model = ModelSpec(name="busy", url=server.url, retries=0, fallbacks=[plain])
    run, requests = await played("look", msgspec.structs.replace(SPEC, model=model), images=["https://x.example/a.png"])
    assert run.result is not None
    assert (run.result.state, run.result.output) == ("success", "0, 0")
    native, in_text = requests
    assert native.tools
    assert not in_text.tools
    assert '{"name": "add"' in in_text.messages[0]["content"]
    assert '{"name": "add"' not in native.messages[0]["content"]


async def test_no_model_answers(server: ModelServer) -> None:
    model = ModelSpec(name="busy", url=server.url, retries=0, fallbacks=[ModelSpec(name="first", url=server.url)])
    run, _ = await played("anything", model=model)
    assert run.result is not None
    assert run.result.error is not None
    assert holds(run.result.error.message, "401", "CADRE_MODEL_KEY")
