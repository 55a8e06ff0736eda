"""Tests of what small models answer where words are wanted, and what they read of their mistakes."""

import json
from typing import Any

import msgspec
import pytest

from cadre.engine.answers.answer_form import LAST_WORD_FAILED
from cadre.journal import events as ev
from cadre.ports import ModelReply
from cadre.spec.agent import AgentSpec, Limits
from cadre.spec.model import ModelSpec
from cadre.testing import Team, answer, call
from cadre.tool import tool

CALLED = json.dumps({"function": {"name": "look_up", "arguments": {"word": "moss"}}})


@tool(read_only=True)
def look_up(word: str, at_most: int) -> str:
    """Look a word up.

    Args:
        word: The word.
        at_most: Lines.
    """
    return f"{word}: green {at_most}"


def agent(name: str = "a", calls: str = "native", **fields: Any) -> AgentSpec:
    return AgentSpec(
        name=name,
        description="A.",
        tools=["look_up"],
        model=ModelSpec(calls=calls),  # type: ignore[arg-type]
        limits=Limits(max_steps=1),
        **fields,
    )


async def ended(spec: AgentSpec, last: Any) -> tuple[ev.RunFinished, Team]:
    """Return how a run with one step ends whose model says this at last."""
    first = call("look_up", word="moss", at_most=1)
    asked = first if spec.model.calls == "native" else _written(spec, first.arguments)
    async with Team([spec], [look_up], [asked, last]) as team:
        run = await team.start("a", "What is moss?")
        await run.settle()
        [finished] = [event for event in run.events if isinstance(event, ev.RunFinished)]
        return finished, team


def _written(spec: AgentSpec, arguments: Any) -> str:
    meant = arguments if isinstance(arguments, dict) else json.loads(arguments)
    said = {"name": "look_up", "arguments": meant}
    return json.dumps({"function": said} if spec.model.calls == "schema" else said)


@pytest.mark.parametrize("calls", ["native", "schema", "text"])
@pytest.mark.parametrize("text", [CALLED, f"```json\n{CALLED}\n```"])
async def test_a_call_is_no_last_word(calls: str, text: str) -> None:
    finished, _ = await ended(agent(calls=calls), text)
    assert (finished.state, finished.error.code if finished.error else "") == ("max_steps_error", "max-steps")
    assert str(finished.output).startswith(LAST_WORD_FAILED)


async def test_a_native_call_is_no_last_word_but_that_of_final_answer_is() -> None:
    finished, _ = await ended(agent(), call("look_up", word="moss", at_most=1))
    assert str(finished.output).startswith(LAST_WORD_FAILED)
    finished, _ = await ended(agent(), call("final_answer", answer="Green."))
    assert (finished.state, finished.output) == ("max_steps_error", "Green.")


@pytest.mark.parametrize(
    "text",
    [
        "Moss is green.",
        'I would call {"name": "look_up", "arguments": {}} next.',
        '{"name": "Moss", "arguments": {}}',
    ],
)
async def test_words_about_calls_stay_the_last_word(text: str) -> None:
    finished, _ = await ended(agent(), text)
    assert finished.output == text


async def test_the_last_word_under_a_schema_is_held_to_the_arguments_of_final_answer() -> None:
    finished, team = await ended(agent(calls="schema"), '{"answer": "Green."}')
    asked = team.requests[-1].request.schema
    assert asked is not None
    assert (finished.output, list(asked["properties"])) == ("Green.", ["answer"])


async def test_a_manager_reads_that_its_member_ran_out_of_steps() -> None:
    boss = AgentSpec(name="boss", description="B.", team=["a"])
    models: Any = {
        "boss": [call("a", task="What is moss?"), answer("ok")],
        "a": [call("look_up", word="moss", at_most=1), "Perhaps green."],
    }
    async with Team([boss, agent()], [look_up], models) as team:
        run = await team.start("boss", "Ask.")
        await run.result()
        asked = [one for one in team.requests if one.agent == "boss"][-1]
        read = asked.request.messages[-1]["content"]
    assert "limit of 1 steps" in read
    assert "Perhaps green." in read


@pytest.mark.parametrize(
    ("said", "is_call"),
    [
        ("Let me think. " * 9, False),
        (f'{CALLED} {{"function": {{"name": "look_up", "arguments": {{"wo', True),
    ],
)
async def test_an_answer_that_ran_on_is_shown_the_form_of_a_call(said: str, is_call: bool) -> None:
    spec = msgspec.structs.replace(agent(calls="text"), limits=Limits(max_steps=3))
    cut = ModelReply(content=said, finish_reason="length")
    async with Team([spec], [look_up], [cut, answer("ok")]) as team:
        run = await team.start("a", "What is moss?")
        await run.result()
        read = team.requests[-1].request.messages[-1]["content"]
    assert SHOWN in read
    assert ("held no call" in read) != is_call


SHOWN = '{"name": "look_up", "arguments": {"word": "…", "at_most": 0}}'


@pytest.mark.parametrize(
    ("calls", "form"), [("native", SHOWN), ("text", SHOWN), ("schema", f'{{"function": {SHOWN}}}')]
)
async def test_an_answer_without_a_call_is_shown_one_of_the_agents_own_tools(calls: str, form: str) -> None:
    spec = msgspec.structs.replace(agent(calls=calls), limits=Limits(max_steps=3))
    async with Team([spec], [look_up], ["I do not know.", answer("ok")]) as team:
        run = await team.start("a", "What is moss?")
        await run.result()
        read = team.requests[-1].request.messages[-1]["content"]
    assert form in read


async def test_wrong_arguments_are_shown_their_form() -> None:
    spec = msgspec.structs.replace(agent(), limits=Limits(max_steps=3))
    async with Team([spec], [look_up], [call("look_up", text="moss"), answer("ok")]) as team:
        run = await team.start("a", "What is moss?")
        await run.result()
        read = team.requests[-1].request.messages[-1]["content"]
    assert '{"word":"…","at_most":0}' in read
