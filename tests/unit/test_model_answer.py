"""A model's answer put together from pieces, as various servers send them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from cadre.adapters.models.answer import FailedAnswer, MalformedAnswer, ModelAnswer
from cadre.adapters.models.error_body import read_error
from cadre.adapters.models.event_stream import END_OF_STREAM, MalformedBody, read_body
from cadre.adapters.models.openai_client import answer_of
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

    async def hear(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
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

    async def hear(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
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
    letters = [piece(content=letter) for letter in "bcdefghijk"]
    reply, heard = await put_together(*letters, piece("stop"), seconds=0.02)
    assert reply.content == "".join(heard) == "bcdefghijk"
    assert heard == ["b", "cde", "fgh", "ijk"]


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
        # Whole calls, all at index 0, distinguished by their ids.
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
    reply, _ = await put_together({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]})
    assert [(c.name, c.arguments) for c in reply.calls] == [("a", '"0"'), ("a", '"1"')]


@pytest.mark.parametrize(
    ("pieces", "complaint"),
    [
        ([], "holds no choice"),
        ([{"choices": []}], "holds no choice"),
        ([{"choices": "none"}], "holds no choice"),
        ([{"choices": [7, None]}], "holds no choice"),
        ([piece(content="half")], "without a finish_reason"),
        (["<html>"], "holds no choice"),
        ([None], "holds no choice"),
        ([{"choices": [{"message": {"content": None}, "finish_reason": None}]}], "without a finish_reason"),
    ],
)
async def test_what_is_no_answer(pieces: list[object], complaint: str) -> None:
    with pytest.raises(MalformedAnswer, match=complaint):
        await put_together(*pieces)


CLOCK = {"function": {"name": "clock", "arguments": "{}"}}


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": [{**CLOCK, "id": 17}]},
        {"tool_calls": [{**CLOCK, "index": "0"}]},
        {"tool_calls": [{**CLOCK, "type": None, "id": None, "index": None}]},
        {"tool_calls": CLOCK},
        {"tool_calls": {"0": CLOCK}},
        {"tool_calls": [{"type": "custom", "custom": {"name": "clock", "input": "{}"}}]},
        {"tool_calls": [None, 5, CLOCK]},
        {"tool_calls": [{"function": {"name": "clock", "arguments": {}}}]},
        {"tool_calls": [{"name": "clock", "arguments": "{}", "function": None}]},
        {"function_call": {"name": "clock", "arguments": "{}"}, "tool_calls": None},
        {"content": {"text": 1}, "role": 5, "tool_calls": [CLOCK], "refusal": [], "annotations": "none"},
        {"content": [{"type": "text"}, None, 7], "tool_calls": [CLOCK]},
        {"content": [{"type": "tool_use", "id": "A", "name": "clock", "input": {}}]},
        {"tool_calls": [{"function": "clock", "arguments": "{}"}]},
        {"tool_calls": [{"function": {"name": "clock", "args": {}}}]},
    ],
)
@pytest.mark.parametrize("place", ["delta", "message"])
async def test_an_odd_field_takes_nothing_else_along(message: dict[str, Any], place: str) -> None:
    reply, _ = await put_together({"choices": [{place: message, "finish_reason": "tool_calls", "index": None}]})
    assert [(one.name, one.arguments, one.error) for one in reply.calls] == [("clock", "{}", None)]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
                {"type": "text", "text": "Hi"},
            ],
            "Hi",
        ),
        (["H", {"text": "i"}], "Hi"),
        ([{"type": "output_text", "text": "Hi"}, {"type": "image_url", "image_url": {}}], "Hi"),
        ([{"type": "refusal", "refusal": "Hi"}], "Hi"),
        ([{"type": "text", "text": {"value": "Hi"}}], "Hi"),
        ({"type": "text", "text": "Hi"}, "Hi"),
        ({"n": 1}, '{"n":1}'),
        (5, "5"),
        (None, ""),
    ],
)
@pytest.mark.parametrize("place", ["delta", "message"])
async def test_content_in_other_forms_than_text(content: Any, text: str, place: str) -> None:
    reply, heard = await put_together({"choices": [{place: {"content": content}, "finish_reason": "stop"}]})
    assert reply.content == "".join(heard) == text


@pytest.mark.parametrize(
    ("usages", "tokens"),
    [
        ([{"prompt_tokens": "100", "completion_tokens": 9.0}], (100, 9, 0)),
        ([{"prompt_tokens": 100, "completion_tokens": n} for n in (1, 5, 9)] + [None], (100, 9, 0)),
        (
            [
                {
                    "prompt_tokens": 100,
                    "completion_tokens": 9,
                    "prompt_tokens_details": {"cached_tokens": 50},
                },
                {"prompt_tokens": 0, "completion_tokens": 0},
            ],
            (100, 9, 50),
        ),
        ([{"prompt_tokens": 100, "completion_tokens": 9, "prompt_cache_hit_tokens": 64}], (100, 9, 64)),
        ([{"prompt_tokens": 100, "completion_tokens": 9, "cached_tokens": 64.0}], (100, 9, 64)),
        ([{"prompt_tokens": -3, "completion_tokens": "many", "total_tokens": float("inf")}], (0, 0, 0)),
        ([{"prompt_tokens": 10**30, "completion_tokens": True}], (0, 1, 0)),
        (["none", [], 7], (0, 0, 0)),
        (
            [
                {
                    "prompt_tokens": 10,
                    "completion_tokens": 5,
                    "total_tokens": 35,
                    "completion_tokens_details": {"reasoning_tokens": 20},
                }
            ],
            (10, 25, 0),
        ),
    ],
)
async def test_usage_as_endpoints_write_it(usages: list[Any], tokens: tuple[int, int, int]) -> None:
    reply, _ = await put_together(*({**piece(content="a"), "usage": one} for one in usages), piece("stop"))
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.cached_tokens) == tokens


@pytest.mark.parametrize("where", ["choice", "x_groq"])
async def test_usage_in_other_places(where: str) -> None:
    used = {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    last = piece("stop")
    if where == "choice":
        last["choices"][0] |= used
    else:
        last["x_groq"] = used
    reply, _ = await put_together(piece(content="a"), last)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 4)


async def test_calls_in_the_second_choice() -> None:
    whole = {
        "choices": [
            {"message": {"content": "I look."}, "finish_reason": "tool_calls"},
            {"message": {"tool_calls": [CLOCK]}, "finish_reason": "tool_calls"},
        ]
    }
    reply, _ = await put_together(whole)
    assert (reply.content, [one.name for one in reply.calls]) == ("I look.", ["clock"])
    first, second = piece(content="I look."), piece("tool_calls", tool_calls=[CLOCK])
    second["choices"][0]["index"] = 1
    reply, _ = await put_together(first, second)
    assert (reply.content, [one.name for one in reply.calls]) == ("I look.", ["clock"])


@pytest.mark.parametrize(
    "sent",
    [
        {"choices": [{"delta": "Hi", "finish_reason": "stop"}]},
        {"choices": [{"message": "Hi", "finish_reason": "stop"}]},
        {"choices": [{"text": "Hi", "finish_reason": "stop"}]},
        {"choices": [{"delta": {"content": "Hi", "finish_reason": "stop"}}]},
        {"choices": [{"delta": {"content": "Hi"}, "finishReason": "stop"}]},
        [piece(content="H"), piece("stop", content="i")],
    ],
)
async def test_an_answer_in_the_dress_of_another_api(sent: Any) -> None:
    reply, heard = await put_together(sent)
    assert (reply.content, "".join(heard), reply.finish_reason) == ("Hi", "Hi", "stop")


async def test_a_message_next_to_a_delta_repeats_nothing() -> None:
    last = {"choices": [{"delta": {}, "message": {"content": "Hi"}, "finish_reason": "stop"}]}
    reply, _ = await put_together(piece(content="Hi"), last)
    assert reply.content == "Hi"


async def test_only_one_of_two_whole_answers_is_done() -> None:
    choices = [{"message": {"tool_calls": [CLOCK]}, "finish_reason": "stop"} for _ in range(2)]
    reply, _ = await put_together({"choices": choices})
    assert len(reply.calls) == 1


async def test_a_whole_message_behind_the_stream_repeats_it() -> None:
    message = {"content": "Hello", "tool_calls": [{**CLOCK, "id": "A"}]}
    last = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    reply, heard = await put_together(piece(content="Hel", tool_calls=[{**CLOCK, "id": "A", "index": 0}]), last)
    assert (reply.content, "".join(heard), len(reply.calls)) == ("Hello", "Hello", 1)


@pytest.mark.parametrize("wrapper", ["provider", "result", "data"])
async def test_a_completion_in_a_gateways_own_object(wrapper: str) -> None:
    reply, _ = await put_together({wrapper: piece("stop", content="Hi"), "success": True})
    assert reply.content == "Hi"


async def test_a_call_without_a_name_is_not_made_and_takes_no_other_along() -> None:
    nameless = {"index": 1, "id": "B", "function": {"name": "", "arguments": '{"city": "Bern"}'}}
    reply, _ = await put_together(piece("tool_calls", tool_calls=[{**CLOCK, "index": 0, "id": "A"}, nameless]))
    assert [(one.name, one.error and one.error.code) for one in reply.calls] == [
        ("clock", None),
        ("", "invalid-call"),
    ]


async def test_the_end_may_be_marked_without_a_finish_reason() -> None:
    whole = {"choices": [{"message": {"tool_calls": [CLOCK]}, "finish_reason": None}]}
    reply, _ = await put_together(whole)
    assert (len(reply.calls), reply.finish_reason) == (1, "tool_calls")

    async def ignore(text: str, *, of_answer: bool = False, chunk: object = None) -> None: ...

    answer = ModelAnswer([], ignore, lambda: 0.0)
    await answer.add(piece(content="Hi"))
    answer.end()
    assert (await answer.done()).finish_reason == "stop"


@pytest.mark.parametrize(
    "sent",
    [
        {"error": {"message": "no credit", "code": 402}},
        {"error": "no credit", "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]},
        {"choices": [{"delta": {}, "finish_reason": "error", "error": {"message": "no credit"}}]},
        [{"error": {"message": "no credit"}}],
        {"object": "error", "message": "no credit"},
        {"base_resp": {"status_code": 1008, "status_msg": "no credit"}, "choices": None},
        {"message": "no credit", "code": "wrong_api_format"},
        {"detail": "no credit"},
        {"success": False, "errors": [{"code": 1, "message": "no credit"}]},
    ],
)
async def test_an_error_within_an_answer_keeps_its_words(sent: Any) -> None:
    with pytest.raises(FailedAnswer) as caught:
        await put_together(piece(content="half"), sent)
    assert "no credit" in read_error(caught.value.error).text


@pytest.mark.parametrize("sent", [{"error": None}, {"error": {}}, {"error": "", "message": None}])
async def test_an_empty_error_is_none(sent: Any) -> None:
    reply, _ = await put_together({**piece("stop", content="Hi"), **sent})
    assert reply.content == "Hi"


async def test_a_character_in_two_pieces_is_passed_on_whole() -> None:
    halves = (piece(content="b\ud83d"), piece(content="\ude42b"))
    reply, heard = await put_together(*halves, piece("stop"))
    assert (reply.content, heard) == ("b🙂b", ["b", "🙂b"])


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
    async def ignore(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
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

    async def hear(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
        heard.append(text)

    answer = answer_of(ModelSpec(), [], hear, ("<code>", "</code>"))
    sent = f"{kept}\nObservation: 5\n<code>\ny\n</code>"
    for at in range(0, len(sent), size):
        await answer.add(piece(content=sent[at : at + size]))
    await answer.add(piece("length"))
    reply = await answer.done()
    assert (reply.content, "".join(heard)) == (kept, kept)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("is_opened", [False, True])
async def test_a_draft_in_a_thought_ends_no_answer(size: int, is_opened: bool) -> None:
    async def ignore(text: str, *, of_answer: bool = False, chunk: object = None) -> None: ...

    answer = answer_of(ModelSpec(), ["\nSTOP"], ignore, ("<code>", "</code>"))
    if is_opened:
        answer.expect_thought()
    draft = "Perhaps\n<code>\nwipe()\n</code>\nSTOP: no.</think>\n"
    sent = f"{'' if is_opened else '<think id=1>'}{draft}<code>\nx = 1\n</code>"
    for at in range(0, len(sent), size):
        await answer.add(piece(content=sent[at : at + size]))
        assert not answer.is_over
    await answer.add(piece("stop"))
    assert (await answer.done()).content == sent


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("sent", "told", "is_opened"),
    [
        ("<think>\nSECRET\n</think>\n\nThe answer is <b>4</b>.", "The answer is <b>4</b>.", False),
        ("Sure. <thinking>SECRET</thinking>4 < 5", "Sure. 4 < 5", False),
        ("[THINK]SECRET[/THINK][1] says so", "[1] says so", False),
        ("◁think▷SECRET◁/think▷4", "4", False),
        ("<think>SECRET", "", False),
        ("<reasoning effort='low'>SECRET</reasoning>4 < 5 and 6", "4 < 5 and 6", False),
        ("<|channel>thought\nSECRET<channel|>4", "4", False),
        ("<|START_THINKING|>SECRET<|END_THINKING|><|START_RESPONSE|>4<|END_RESPONSE|>", "4", False),
        ("<think>SECRET</think>\n<answer>4</answer>", "4", False),
        (
            "<|channel|>analysis<|message|>SECRET<|end|><|start|>assistant<|channel|>final<|message|>4",
            "4",
            False,
        ),
        ("analysisWe SECRETassistantfinal4", "4", False),
        ("SECRET\n</think>\n\n4", "4", True),
        ("No thought at all.", "No thought at all.", True),
    ],
)
async def test_no_piece_of_a_thought_is_passed_on(sent: str, told: str, is_opened: bool, size: int) -> None:
    heard: list[str] = []

    async def hear(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
        heard.append(text)

    answer = ModelAnswer([], hear, iter(range(1000)).__next__)
    if is_opened:
        answer.expect_thought()
    for at in range(0, len(sent), size):
        await answer.add(piece(content=sent[at : at + size]))
    await answer.add(piece("stop"))
    reply = await answer.done()
    assert (reply.content, "".join(heard)) == (sent, told)


@pytest.mark.parametrize("blanks", ["\n", "  \n \t"])
@pytest.mark.parametrize(
    ("said", "is_whole"),
    [
        ({"content": '{"a": "b"}'}, True),
        ({"content": '{"a": "b'}, False),
        ({"content": "Some prose."}, False),
        ({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}]}, True),
        ({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a":'}}]}, False),
    ],
)
async def test_blanks_behind_a_whole_json_value_end_the_answer(
    said: dict[str, Any], is_whole: bool, blanks: str
) -> None:
    async def ignore(_: str, *, of_answer: bool = False, chunk: object = None) -> None: ...

    answer = ModelAnswer([], ignore, lambda: 0.0)
    await answer.add({"choices": [{"index": 0, "delta": said, "finish_reason": None}]})
    came = 0
    while not answer.is_over and came < 1_000:
        await answer.add({"choices": [{"index": 0, "delta": {"content": blanks}, "finish_reason": None}]})
        came += len(blanks)
    assert (came < 100) == is_whole
    if is_whole:
        reply = await answer.done()
        assert (reply.finish_reason, len(reply.calls)) == ("stop", "tool_calls" in said)


@pytest.mark.parametrize(
    "body",
    ['data: {"n": 1}\ndata: {"n": 2}\ndata: [DONE]\n', '{"n": 1}\n{"n": 2}\n', '{"n": 1}\n\n{"n": 2}'],
    ids=["events without blank lines", "lines of JSON", "lines of JSON apart"],
)
async def test_values_that_no_blank_line_parts(body: str) -> None:
    async def sent() -> AsyncIterator[bytes]:
        yield body.encode()

    assert [value async for value in read_body(sent())] == [{"n": 1}, {"n": 2}, END_OF_STREAM]


@pytest.mark.parametrize(
    "body",
    [
        'data: {"n": 1}{"n": 2} \n\ndata: [DONE]\n\n',
        'data: data: {"n": 1}\n\ndata: data: {"n": 2}\n\ndata: data: [DONE]\n\n',
        'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: "[DONE]"\n\n',
        'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: done\n\n',
    ],
    ids=["two on a line", "data twice", "a quoted end", "a bare end"],
)
async def test_events_as_relays_mangle_them(body: str) -> None:
    async def sent() -> AsyncIterator[bytes]:
        yield body.encode()

    assert [value async for value in read_body(sent())] == [{"n": 1}, {"n": 2}, END_OF_STREAM]


async def test_an_error_in_a_field_of_its_name_keeps_its_words() -> None:
    async def sent() -> AsyncIterator[bytes]:
        yield b'data: {"n": 1}\n\nerror: {"code": 500, "message": "no slot"}\n\n'

    assert [value async for value in read_body(sent())] == [
        {"n": 1},
        {"error": {"code": 500, "message": "no slot"}},
    ]


async def test_a_bare_line_break_in_a_text_of_json_is_read() -> None:
    async def sent() -> AsyncIterator[bytes]:
        yield b'{"n": "a\nb"}'

    assert [value async for value in read_body(sent())] == [{"n": "a\nb"}, END_OF_STREAM]


@pytest.mark.parametrize("word", ["ping", "heartbeat", "keep-alive", "[ping]"])
async def test_signs_of_life_are_no_part_of_an_answer(word: str) -> None:
    async def sent() -> AsyncIterator[bytes]:
        yield f'data: {word}\n\ndata: {{"n": 1}}\n\ndata: {word}\n\ndata: [DONE]\n\n'.encode()

    assert [value async for value in read_body(sent())] == [{"n": 1}, END_OF_STREAM]


async def test_an_answer_may_be_json_in_json() -> None:
    async def sent() -> AsyncIterator[bytes]:
        yield b'"{\\"n\\": 1}"'

    assert [value async for value in read_body(sent())] == [{"n": 1}, END_OF_STREAM]


async def test_a_body_that_is_no_json_stays_malformed() -> None:
    async def sent() -> AsyncIterator[bytes]:
        yield b'{"n": 1}\n{"n": '

    with pytest.raises(MalformedBody):
        _ = [value async for value in read_body(sent())]
