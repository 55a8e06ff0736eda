"""Tests of what a program asks in a later life, found in the record of earlier ones by its content."""

import asyncio
import json
from typing import Any

import pytest

from cadre.adapters.models.answer import ModelAnswer
from cadre.adapters.models.raw_answer import RawAnswer
from cadre.adapters.models.responses_answer import ResponsesAnswer
from cadre.adapters.program import life as life_module
from cadre.adapters.program.address import chat_stream, response_stream
from cadre.adapters.program.life import Life, LifeAsked, LifeEnded, LifeLost, LiveStream, RequestRefused
from cadre.adapters.program.record import Record, difference
from cadre.protocol.code import CodeExchange, CodeReply, CodeRequest, call_request, model_request
from cadre.protocol.deltas import StreamChunk
from cadre.spec.model import MAX_ANSWER_CHARS


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    """A conversation that begins with a question; every second text is an answer."""
    roles = ("user", "assistant")
    said = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return {"model": "m", "messages": said, **more}


def exchange(*requests: CodeRequest) -> CodeExchange:
    replies = [CodeReply(value={"number": number}) for number, _ in enumerate(requests)]
    return CodeExchange(calls=list(requests), replies=replies, clock=[0.0])


def record(*bodies: dict[str, Any]) -> Record:
    return Record([exchange(model_request("chat", body, [])) for body in bodies])


def test_equal_requests_are_found_in_their_order_and_each_once() -> None:
    found = record(chat("a"), chat("b"), chat("a"))
    for place in (0, 2):
        entry = found.find_model("chat", chat("a"))
        assert entry is not None
        assert entry.place == place
        entry.is_taken = True
    assert found.find_model("chat", chat("a")) is None


def test_what_says_nothing_to_the_model_does_not_count() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    found = record(chat("a", user="x", tools=tools))
    assert found.find_model("chat", chat("a", metadata={"n": 1}, tools=tools[::-1])) is not None
    assert found.find_model("chat", chat("a", temperature=0, tools=tools)) is None
    assert found.find_model("responses", chat("a", tools=tools)) is None


def test_calls_are_found_by_their_id_or_else_by_name_and_arguments() -> None:
    found = Record([exchange(call_request("book", {"n": 1}, "c1"), call_request("book", {"n": 1}, ""))])
    first, second = (found.find_call("book", {"n": 1}, id) for id in ("c1", ""))
    assert first is not None
    assert second is not None
    assert (first.place, second.place) == (0, 1)
    assert found.find_call("book", {"n": 2}, "c1") is None
    assert found.find_call("cancel", {"n": 1}, "") is None


@pytest.mark.parametrize(
    ("other", "path"),
    [
        (chat("b"), "$.messages[0].content: 'a' -> 'b'"),
        (chat("a", n=2), "$.n: absent -> 2"),
        (chat("a", "x"), "$.messages: length 1 -> 2"),
        ({"model": "m"}, "$.messages: "),
        ({"model": 1, "messages": []}, "$.messages: length 1 -> 0"),
    ],
)
def test_a_difference_is_a_path_with_both_values(other: dict[str, Any], path: str) -> None:
    (entry,) = record(chat("a")).entries
    assert difference(entry, other).startswith(path)


async def test_what_is_new_is_told_once_together_and_answered() -> None:

    life = Life("t", Record([]), [])
    first = asyncio.create_task(life.ask_model("chat", chat("a"), is_repeated=False))
    second = asyncio.create_task(life.call("book", {"n": 1}, ""))
    word = await life.word()
    assert isinstance(word, LifeAsked)
    assert [one.name for one in word.requests] == ["chat", "call"]
    life.resume([CodeReply(value={"id": "x"}), CodeReply(value=2)])
    entry = await first
    assert entry.reply == CodeReply(value={"id": "x"})
    life.release(entry)
    assert (await second).reply == CodeReply(value=2)


async def test_an_answer_is_given_in_the_order_of_the_record() -> None:

    life = Life("t", record(chat("a"), chat("b")), [])
    order = []

    async def ask(text: str) -> None:
        entry = await life.ask_model("chat", chat(text), is_repeated=False)
        order.append(text)
        life.release(entry)

    await asyncio.gather(ask("b"), ask("a"))
    assert order == ["a", "b"]


async def test_a_request_without_a_match_waits_for_what_is_missing() -> None:

    life = Life("t", record(chat("a")), [])
    new = asyncio.create_task(life.ask_model("chat", chat("b"), is_repeated=False))
    await asyncio.sleep(0)
    life.release(await life.ask_model("chat", chat("a"), is_repeated=False))
    word = await life.word()
    assert isinstance(word, LifeAsked)
    assert len(word.requests) == 1
    life.resume([CodeReply(value={})])
    await new


async def test_it_is_refused_once_the_program_is_quiet_and_the_life_is_over() -> None:
    life = Life("t", record(chat("a")), [])
    with pytest.raises(RequestRefused) as refused:
        await life.ask_model("chat", chat("b"), is_repeated=False)
    assert (refused.value.status, refused.value.code) == (409, "non_deterministic")
    word = await life.word()
    assert isinstance(word, LifeEnded)
    assert word.error is not None
    assert word.error.code == "non-deterministic"
    with pytest.raises(RequestRefused) as late:
        await life.call("book", {}, "")
    assert late.value.status == 410


async def test_deeper_requests_of_a_program_that_skips_what_it_did_are_new() -> None:
    """A checkpointer does not ask again for what it has."""
    life = Life("t", record(chat("a"), chat("a", "x", "b")), [])

    asking = asyncio.create_task(life.ask_model("chat", chat("a", "x", "b", "y", "c"), is_repeated=False))
    word = await life.word()
    assert isinstance(word, LifeAsked)
    life.end(LifeLost("over"))
    with pytest.raises(RequestRefused):
        await asking


async def test_a_request_that_its_client_sends_again_is_the_same() -> None:

    life = Life("t", Record([]), [])
    asking = [
        asyncio.create_task(life.ask_model("chat", chat("a"), is_repeated=repeated)) for repeated in (False, True)
    ]
    word = await life.word()
    assert isinstance(word, LifeAsked)
    assert len(word.requests) == 1
    life.resume([CodeReply(value={})])
    entries = [await asking[0]]
    life.release(entries[0])
    entries.append(await asking[1])
    assert entries[0] is entries[1]


CALL = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": '{"n": 1}'}}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 7,
    "model": "m",
    "system_fingerprint": "fp",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "said",
                "reasoning_content": "thought",
                "tool_calls": [CALL, {**CALL, "id": "c2"}],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}


async def said(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
    return None


def pieces(stream: Any) -> list[dict[str, Any]]:

    lines = b"".join(stream).decode().split("\n\n")
    data = [line.partition("data: ")[2] for line in lines if "data: " in line]
    return [json.loads(one) for one in data if one != "[DONE]"]


async def test_a_streamed_completion_is_put_together_as_it_was() -> None:
    raw = RawAnswer(ModelAnswer([], said, lambda: 0.0), "chat", said)
    for piece in pieces(chat_stream(COMPLETION, with_usage=True)):
        await raw.add(piece)
    reply = await raw.done()
    assert reply.raw == COMPLETION
    assert (reply.usage.total_tokens, [call.name for call in reply.calls]) == (3, ["book", "book"])


async def test_a_streamed_response_is_put_together_as_it_was() -> None:
    part = {"type": "output_text", "text": "said", "annotations": []}
    message = {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    call = {"id": "f1", "type": "function_call", "call_id": "c1", "name": "book", "arguments": "{}"}
    response = {
        "id": "r1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [message, call],
    }
    raw = RawAnswer(ResponsesAnswer([], said, lambda: 0.0, MAX_ANSWER_CHARS), "responses", said)
    for piece in pieces(response_stream(response)):
        await raw.add(piece)
    assert (await raw.done()).raw == response


def chunk(seq: int, text: str | None = "", step: int = 1, attempt: int = 1) -> StreamChunk:
    data = {"choices": [{"delta": {"content": text}}]} if text is not None else None
    return StreamChunk(run="r", step=step, attempt=attempt, seq=seq, data=data)


@pytest.mark.parametrize(
    ("chunks", "given", "whole"),
    [
        ([chunk(1, "a"), chunk(2, "b"), chunk(3, None)], "ab", True),
        ([chunk(1, "a"), chunk(3, None)], "a", False),
        ([chunk(2, "b"), chunk(3, None)], "", False),
        ([chunk(1, "a"), chunk(1, "a", attempt=2), chunk(2, None, attempt=2)], "a", False),
        ([chunk(1, "a"), chunk(2, None), chunk(1, "a")], "a", False),
        ([chunk(1, "a"), chunk(2, "b", step=2)], "a", False),
    ],
)
async def test_a_stream_with_a_hole_is_never_taken_for_a_whole_one(
    chunks: list[StreamChunk], given: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life_module, "_TAIL_SECONDS", 0.01)
    live = LiveStream(lambda piece: "choices" in piece)
    for one in chunks:
        live.take(one)
    assert "".join(piece["choices"][0]["delta"]["content"] for piece in live.give()) == given
    assert await live.is_whole() is whole


async def test_a_stream_without_its_beginning_is_not_given() -> None:
    live = LiveStream(lambda piece: piece.get("type") == "response.created")
    live.take(chunk(1, "a"))
    assert live.give() == []
