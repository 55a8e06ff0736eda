"""Tests of what a weak model does, through the real client: each run ends in a clear state, with an error that says
why."""

from typing import Any

import msgspec
import pytest

from cadre.errors import ModelUnavailable
from cadre.journal.run import ActionStep, Result
from cadre.spec.agent import Limits
from cadre.spec.model import ModelSpec
from cadre.testing import ModelServer, running_model
from integration.model_calls import ask, saying, spec_for
from integration.model_runs import played
from unit.loop.build import SPEC

SCRIPT = """
rules:
  - {name: last word, match: {last: Answer this task now}, reply: {content: Nothing was found.}}
  - name: invents
    match: {model: invents, tools: [add]}
    reply: {tool_calls: [{name: fly_to, arguments: {place: Mars}}]}
  - name: invents in text
    match: {model: invents}
    reply: {content: '{"name": "fly_to", "arguments": {"place": "Mars"}}'}
  - {name: repeats, match: {model: repeats}, reply: {content: "I will search now. I will search now. ", finish: length}}
  - {name: nothing, match: {model: nothing}, reply: {content: ""}}
  - name: cut call
    match: {model: cut, tools: [add]}
    reply: {tool_calls: [{name: add, arguments: '{"a": 1, "b": '}], finish: length}
  - name: cut json
    match: {model: cut}
    reply: {content: '{"function": {"name": "add", "arguments": {"a": 1', finish: length}
  - {name: slow, match: {model: slow}, reply: {content: one token now and then, chunk: 4, delay: 0.4}}
  - name: looks
    match: {model: tiny, user: ^New task}
    reply: {content: '{"function": {"name": "add", "arguments": {"a": {{ turn }}, "b": 0}}}'}
  - name: looks on
    match: {model: tiny, last: ^Observation}
    reply: {content: '{"function": {"name": "add", "arguments": {"a": {{ turn }}, "b": {{ turn }}}}}'}
"""

UNKNOWN = "Unknown tool 'fly_to', should be one of: add, look, kid, final_answer."
CUT = "Your answer was cut off at the limit of tokens before it was whole, so nothing of it was done."
NO_CALL = "Your answer holds no tool call. Call a tool, or call `final_answer` with your answer when you are done."


async def end(model: ModelSpec, **fields: Any) -> tuple[Result, list[str]]:
    """Return how a run ends, and what its model read was wrong, step by step."""
    run, _ = await played("anything", msgspec.structs.replace(SPEC, model=model, **fields))
    assert run.result is not None
    steps = [step for step in run.steps if isinstance(step, ActionStep)]
    calls = [call.error.message for step in steps for call in step.calls if call.error is not None]
    return run.result, [*calls, *(step.error.message for step in steps if step.error is not None)]


WRONG = [
    pytest.param("invents", "native", UNKNOWN, id="tools that do not exist"),
    pytest.param("invents", "text", UNKNOWN, id="tools that do not exist, in text"),
    pytest.param("repeats", "native", CUT, id="one phrase without end"),
    pytest.param("nothing", "native", NO_CALL, id="nothing at all"),
    pytest.param("nothing", "schema", NO_CALL, id="nothing at all, under a schema"),
    pytest.param("cut", "native", CUT, id="a call that is cut"),
    pytest.param("cut", "schema", CUT, id="a call in text that is cut"),
]


@pytest.mark.parametrize(("name", "calls", "wrong"), WRONG)
async def test_the_last_word_is_asked_for_and_the_end_says_what_was_wrong(
    server: ModelServer, name: str, calls: str, wrong: str
) -> None:
    result, told = await end(spec_for(server, name=name, calls=calls), limits=Limits(max_steps=3))
    assert (result.state, result.output) == ("max_steps_error", "Nothing was found.")
    assert [text.startswith(wrong) for text in told] == [True] * 3
    assert result.error is not None
    said = "Reached the limit of 3 steps. In the last 3 steps nothing could be done: "
    assert result.error.message.startswith(said + wrong)


@pytest.mark.parametrize(("name", "calls", "wrong"), WRONG)
async def test_a_model_that_does_not_mend_it_ends_its_run(
    server: ModelServer, name: str, calls: str, wrong: str
) -> None:
    result, told = await end(spec_for(server, name=name, calls=calls), limits=Limits(max_steps=50))
    assert result.state == "error"
    assert result.error is not None
    assert result.error.type == "LoopDetected"
    assert len(told) < 12
    assert wrong in " ".join([result.error.message, *told])


async def test_an_endpoint_that_writes_a_token_now_and_then(server: ModelServer) -> None:
    """The timeout is for silence, however long the whole answer takes."""
    reply, heard = await ask(spec_for(server, name="slow", timeout=1.0), saying("anything"))
    assert reply.content == "".join(heard) == "one token now and then"
    with pytest.raises(ModelUnavailable, match=r"0\.2 s; model\.timeout"):
        await ask(spec_for(server, name="slow", timeout=0.2), saying("anything"))


async def test_a_context_of_2000_tokens(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The short prompts leave room for many steps, earlier ones in summaries; the long ones for none."""
    script = tmp_path_factory.mktemp("tiny") / "script.yaml"
    script.write_text(f"context: 2000\n{SCRIPT.lstrip()}")
    with running_model("--script", script) as tiny:
        model = spec_for(tiny, name="tiny", calls="schema", context=2_000, max_tokens=300)
        limits = Limits(max_steps=100, repeats=0)
        run, requests = await played(
            "Add all numbers.", msgspec.structs.replace(SPEC, model=model, prompts="short", limits=limits)
        )
        assert run.result is not None
        assert run.result.state == "max_steps_error", run.result
        assert run.summary is not None
        assert len(requests) > 100
        assert {line["status"] for line in tiny.journal()} == {200}
        before = len(tiny.journal())
        unsaid = msgspec.structs.replace(model, context=128_000)
        run, requests = await played(
            "Add all numbers.", msgspec.structs.replace(SPEC, model=unsaid, prompts="short", limits=limits)
        )
        assert run.result is not None
        assert run.result.state == "max_steps_error", run.result
        assert (run.context, run.overflows) == (2_000, 1)
        refused = [line["n"] for line in tiny.journal()[before:] if line["status"] != 200]
        assert len(refused) == 1, "the endpoint says how much it takes"
        small = msgspec.structs.replace(model, context=1_000, max_tokens=700)
        run, requests = await played("Add all numbers.", msgspec.structs.replace(SPEC, model=small))
    assert requests == []
    assert run.result is not None
    assert run.result.error is not None
    assert "model.context" in run.result.error.message
