"""A model's answer put together from pieces, as various servers send them."""

from typing import Any

import pytest

from cadre.adapters.models.answer import MalformedAnswer, ModelAnswer
from cadre.adapters.models.api import answer_of
from cadre.errors import SpecError
from cadre.ports import ModelReply
from cadre.spec.agent import AgentSpec
from cadre.spec.model import ModelApi, ModelSpec


def piece(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "model": "m"}


def call(arguments: str | None = None, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": arguments}}


async def put_together(
    *pieces: object, stop: tuple[str, ...] = (), seconds: float = 1.0
) -> tuple[ModelReply, list[str]]:
    """The reply and the texts passed on, with `seconds` between two pieces."""
    heard: list[str] = []
    now = 0.0

    async def hear(text: str, *, of_answer: bool = False) -> None:
        heard.append(text)

    answer = ModelAnswer(list(stop), hear, lambda: now)
    for one in pieces:
        await answer.add(one)
        now += seconds
    return await answer.done(), heard


async def test_text_and_usage() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": None}}
    reply, heard = await put_together(piece(content="Hel"), piece(content="lo"), piece("stop"), usage)
    assert (reply.content, heard, reply.finish_reason, reply.model) == ("Hello", ["Hel", "lo"], "stop", "m")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.model_calls) == (3, 0, 0)


ARGUMENTS = '{"answer": "She said \\"caf\\u00e9 \\ud83d\\ude00\\".", "more": 1}'


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize(("name", "told"), [("final_answer", 'She said "café 😀".'), ("say", "")])
async def test_an_answer_is_passed_on_while_it_comes_as_a_call(name: str, told: str, size: int) -> None:
    heard: list[str] = []

    async def hear(text: str, *, of_answer: bool = False) -> None:
        assert of_answer
        heard.append(text)

    answer = ModelAnswer([], hear, iter(range(1000)).__next__)
    await answer.add(piece(tool_calls=[call("", name, index=0)]))
    for begin in range(0, len(ARGUMENTS), size):
        await answer.add(piece(tool_calls=[call(ARGUMENTS[begin : begin + size], None, index=0)]))
    assert "".join(heard) == told


async def test_a_refusal_is_the_answer() -> None:
    reply, _ = await put_together(piece(refusal="I will "), piece(refusal="not."), piece("stop"))
    assert reply.content == "I will not."


async def test_quick_pieces_are_passed_on_together() -> None:
    letters = [piece(content=letter) for letter in "abcdefghij"]
    reply, heard = await put_together(*letters, piece("stop"), seconds=0.02)
    assert reply.content == "".join(heard) == "abcdefghij"
    assert heard == ["a", "bcd", "efg", "hij"]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_nothing_of_a_stop_sequence_is_passed_on(size: int) -> None:
    text = "Act: <en or <end> and more <end>"
    pieces = [piece(content=text[at : at + size]) for at in range(0, len(text), size)]
    reply, heard = await put_together(*pieces, piece("stop"), stop=("<end>", "never"))
    assert reply.content == "".join(heard) == "Act: <en or "


async def test_the_beginning_of_a_stop_sequence_that_never_comes_is_text() -> None:
    reply, heard = await put_together(piece(content="a <en"), piece("stop"), stop=("<end>",))
    assert reply.content == "a <en"
    assert heard == ["a ", "<en"]


@pytest.mark.parametrize(
    "deltas",
    [
        # By index, interleaved, as the standard has it.
        [
            call("", "a", index=0, id="1"),
            call("", "b", index=1, id="2"),
            call("{}", index=0),
            call("[]", index=1),
        ],
        # Whole calls, all at index 0, told apart by their ids.
        [call("{}", "a", index=0, id="1"), call("[]", "b", index=0, id="2")],
        # No index at all.
        [call("{", "a", id="1"), call("}"), call("[]", "b", id="2")],
        # Whole calls without ids, one after the other.
        [call("{}", "a"), call("[]", "b")],
        [call("{}", "a", index=0, id=""), call("[]", "b", index=0, id="")],
        # The id and the name repeated in each piece.
        [call("{", "a", index=0, id="1"), call("}", "a", index=0, id="1"), call("[]", "b", index=1, id="2")],
    ],
)
async def test_tool_calls_in_parallel(deltas: list[dict[str, Any]]) -> None:
    reply, _ = await put_together(*(piece(tool_calls=[delta]) for delta in deltas), piece("tool_calls"))
    assert [(c.name, c.arguments) for c in reply.calls] == [("a", "{}"), ("b", "[]")]


async def test_a_whole_completion() -> None:
    message = {"content": None, "tool_calls": [{"id": "1", "function": {"name": "a", "arguments": {"x": 1}}}]}
    reply, heard = await put_together({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert [(c.name, c.arguments) for c in reply.calls] == [("a", '{"x":1}')]
    assert (reply.content, heard) == ("", [])


@pytest.mark.parametrize("ids", [(None, None), ("", ""), ("x", "x"), ("1", "2")])
async def test_each_call_of_a_whole_completion_is_one(ids: tuple[str | None, str | None]) -> None:
    calls = [{"id": one, "function": {"name": "a", "arguments": f'"{n}"'}} for n, one in enumerate(ids)]
    reply, _ = await put_together(
        {"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    )
    assert [(c.name, c.arguments) for c in reply.calls] == [("a", '"0"'), ("a", '"1"')]


@pytest.mark.parametrize(
    ("pieces", "complaint"),
    [
        ([], "holds no choice"),
        ([{"choices": []}], "holds no choice"),
        ([piece(content="half")], "without a finish_reason"),
        ([piece(tool_calls=[call("{}", index=0)]), piece("stop")], "1 of its tool calls have no name"),
        (["<html>"], "Expected"),
        ([{"choices": "none"}], r"\$\.choices"),
        ([piece(content=5)], r"\$\.choices\[0\]\.delta\.content"),
    ],
)
async def test_what_is_no_answer(pieces: list[object], complaint: str) -> None:
    with pytest.raises(MalformedAnswer, match=complaint):
        await put_together(*pieces)


async def test_a_character_in_two_pieces_is_passed_on_whole() -> None:
    halves = (piece(content="a\ud83d"), piece(content="\ude42b"))
    reply, heard = await put_together(*halves, piece("stop"))
    assert (reply.content, heard) == ("a🙂b", ["a", "🙂b"])


async def test_an_answer_in_very_many_pieces_is_joined_once() -> None:
    many = 100_000
    pieces = [piece(content="ab", tool_calls=[call("12", name="", index=0)]) for _ in range(many)]
    first = piece(tool_calls=[call("", name="add", index=0)])
    reply, heard = await put_together(first, *pieces, piece("stop"), seconds=0.0)
    assert (reply.content, reply.calls[0].arguments) == ("ab" * many, "12" * many)
    assert "".join(heard) == reply.content


async def test_an_answer_without_end_is_given_up() -> None:
    page = "x" * 100_000
    for pieces in (
        [piece(content=page)] * 41,
        [piece(tool_calls=[call(page, name="add", index=0)])] * 41,
    ):
        with pytest.raises(MalformedAnswer, match="over 4,000,000 characters"):
            await put_together(*pieces)


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_how_long_an_answer_may_be_is_a_setting_of_the_model(api: ModelApi) -> None:
    async def ignore(text: str, *, of_answer: bool = False) -> None:
        pass

    spec = ModelSpec(api=api, chars=20)
    text = "x" * 21
    sent = {
        "chat": piece("stop", content=text),
        "responses": {"type": "response.output_text.delta", "delta": text},
    }
    with pytest.raises(MalformedAnswer, match=r"over 20 characters; model\.chars sets"):
        await answer_of(spec, [], ignore).add(sent[api])
    with pytest.raises(SpecError, match=r"model\.chars"):
        AgentSpec(name="boss", description="Works.", model=ModelSpec(chars=0))


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_an_answer_with_code_is_cut_behind_its_block(size: int) -> None:
    kept = "T.\n<code>\nx = 'Observation: </code>'\n</code>"
    heard: list[str] = []

    async def hear(text: str, *, of_answer: bool = False) -> None:
        heard.append(text)

    answer = answer_of(ModelSpec(), [], hear, ("<code>", "</code>"))
    sent = f"{kept}\nObservation: 5\n<code>\ny\n</code>"
    for at in range(0, len(sent), size):
        await answer.add(piece(content=sent[at : at + size]))
    await answer.add(piece("length"))
    reply = await answer.done()
    assert (reply.content, "".join(heard)) == (kept, kept)
