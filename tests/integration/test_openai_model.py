"""OpenAIModel with the real client: answers, as the scripted model gives them over HTTP."""

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from cadre.adapters.models.openai_model import OpenAIModel
from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelRefused
from cadre.settings import ModelSettings
from cadre.spec.model import ModelApi, ModelSpec, NamedFunction
from cadre.testing import ModelServer
from harness.memory_ports import MemoryBlobs
from integration.model_calls import ADD, NO_ENDPOINT, SEARCH, ask, asking, saying, spec_for
from integration.probed_server import Body, Refused, probed_server

SCRIPT = """
rules:
  - {name: plain, match: {user: ^plain}, reply: {content: "The answer to {{ user }} is 42."}}
  - {name: paced, match: {user: ^paced}, reply: {content: "0123456789", chunk: 1, delay: 0.06}}
  - name: two calls
    match: {user: ^sum, turn: 0, tools: [add, search]}
    reply:
      content: Both at once.
      tool_calls:
        - {name: add, arguments: {a: 2, b: "{{ number(user) }}"}}
        - {name: search, arguments: {query: "what is {{ user.split()[-1] }}?"}}
  - {name: sum answer, match: {user: ^sum, has_tool: true}, reply: {content: "It is {{ number(results.add[0]) + 1 }}."}}
  - {name: broken arguments, match: {user: ^broken}, reply: {tool_calls: [{name: add, arguments: "not json"}]}}
  - {name: stop, match: {user: ^talks on}, reply: {content: "Thought: done. Observation: made up", chunk: 3}}
  - name: picture
    match: {user: ^picture}
    reply: {content: "{{ images }} {{ messages[-1].content[1].image_url.url }}"}
  - name: options
    match: {user: ^options}
    reply: {content: "{{ body | tojson }}"}
"""

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_with_its_usage(server: ModelServer, stream: bool, api: ModelApi) -> None:
    reply, heard = await ask(spec_for(server, api=api, stream=stream), saying("plain question"))
    assert reply.content == "The answer to plain question is 42."
    assert "".join(heard) == reply.content
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.model_calls) == (4, 9, 0)
    assert (reply.model, reply.finish_reason) == ("scripted", "stop")
    assert [(line["rule"], line["model"], line["stream"], line["outcome"]) for line in server.journal()] == [
        ("plain", "any", stream, "answered")
    ]


async def test_what_an_endpoint_does_not_tell_is_estimated(server: ModelServer) -> None:
    """A budget would never be used up otherwise."""
    untold = spec_for(server, extra_body={"stream_options": {"include_usage": False}})
    request = ModelRequest(messages=saying("plain question").messages, tools=[ADD])
    reply, _ = await ask(untold, request)
    told, _ = await ask(spec_for(server), request)
    assert reply.usage.input_tokens > told.usage.input_tokens > 0
    assert reply.usage.output_tokens >= told.usage.output_tokens > 0


async def test_text_is_passed_on_while_it_is_written(server: ModelServer, api: ModelApi) -> None:
    async with asking(spec_for(server, api=api)) as again:
        # By the first answer the client sees that no chat template opens a thought.
        first, _ = await again(saying("plain question"))
        reply, heard = await again(saying("paced"))
    assert first.content
    assert "".join(heard) == reply.content == "0123456789"
    assert len(heard) > 3
    assert reply.response
    assert reply.server == server.url.partition("//")[2].partition("/")[0]
    assert reply.first_seconds is not None
    assert 0 < reply.first_seconds < 0.4, "nine pieces of ten came 0.06 s apart, behind the first"


@pytest.mark.parametrize("stream", [True, False])
async def test_parallel_tool_calls_and_an_answer_computed_from_their_results(
    server: ModelServer, stream: bool, api: ModelApi
) -> None:
    spec = spec_for(server, api=api, stream=stream)
    request = ModelRequest(messages=[{"role": "user", "content": "sum 40"}], tools=[ADD, SEARCH])
    reply, _ = await ask(spec, request)
    assert (reply.content, reply.finish_reason) == ("Both at once.", "tool_calls")
    calls = [(call.name, json.loads(str(call.arguments))) for call in reply.calls]
    assert calls == [("add", {"a": 2, "b": 40}), ("search", {"query": "what is 40?"})]

    called = [
        {"id": f"c{n}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for n, call in enumerate(reply.calls)
    ]
    request.messages += [
        {"role": "assistant", "content": reply.content, "tool_calls": called},
        {"role": "tool", "tool_call_id": "c1", "content": "forty is 40"},
        {"role": "tool", "tool_call_id": "c0", "content": "1,042"},
    ]
    reply, _ = await ask(spec, request)
    assert reply.content == "It is 1043."


async def test_broken_arguments_are_handed_on_as_the_model_wrote_them(server: ModelServer, api: ModelApi) -> None:
    reply, _ = await ask(spec_for(server, api=api), saying("broken"))
    assert [(call.name, call.arguments) for call in reply.calls] == [("add", "not json")]


async def test_structured_output(server: ModelServer, api: ModelApi) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "size": {"type": "integer", "minimum": 10}},
        "required": ["city", "size"],
    }
    request = ModelRequest(messages=saying("a town").messages, schema=schema)
    reply, _ = await ask(spec_for(server, api=api), request)
    assert json.loads(reply.content) == {"city": "example city", "size": 10}


async def test_json_mode_asks_for_some_object(server: ModelServer) -> None:
    request = ModelRequest(messages=saying("options").messages, json_object=True)
    reply, _ = await ask(spec_for(server), request)
    assert json.loads(reply.content)["response_format"] == {"type": "json_object"}


async def test_text_ends_at_the_stop_sequence_though_the_server_was_not_told(
    server: ModelServer, api: ModelApi
) -> None:
    request = ModelRequest(messages=[{"role": "user", "content": "talks on"}], stop=["Observation:"])
    reply, heard = await ask(spec_for(server, api=api, stop=False), request)
    assert reply.content == "Thought: done. "
    assert "".join(heard) == reply.content
    told, _ = await ask(spec_for(server, api=api), request)
    assert told.content == reply.content


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"max_tokens": 9}, {"max_tokens": 9}),
        ({"max_tokens": 9, "token_limit": "max_completion_tokens"}, {"max_completion_tokens": 9}),
        ({"context": 2_000}, {"max_tokens": 500}),
        ({"extra_body": {"max_completion_tokens": 70}}, {"max_completion_tokens": 70}),
        ({"seed": 7, "reasoning_effort": "minimal"}, {"seed": 7, "reasoning_effort": "minimal"}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"tool_choice": "auto"}, {}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            {"tool_choice": NamedFunction("add")},
            {"tool_choice": {"type": "function", "function": {"name": "add"}}},
        ),
        ({"tool_choice": NamedFunction("gone")}, {"tool_choice": "required"}),
    ],
)
async def test_what_the_spec_asks_of_each_request(
    server: ModelServer, fields: dict[str, Any], sent: dict[str, Any]
) -> None:
    """Nothing is sent that the spec does not name, but for a bound of the answer: endpoints refuse parameters that they
    do not know."""
    request = ModelRequest(messages=saying("options").messages, tools=[ADD])
    reply, _ = await ask(spec_for(server, **fields), request)
    always = {"model", "messages", "tools", "stream", "stream_options"}
    body = {key: value for key, value in json.loads(reply.content).items() if key not in always}
    limit = {} if sent.keys() & {"max_tokens", "max_completion_tokens"} else {"max_tokens": 4_096}
    assert body == limit | sent
    bare, _ = await ask(spec_for(server, **fields), saying("options"))
    assert not {"tool_choice", "parallel_tool_calls"} & json.loads(bare.content).keys()


@pytest.mark.parametrize(
    ("refused", "sent"),
    [
        ([], ["max_tokens"]),
        (["max_tokens"], ["max_tokens", "max_completion_tokens"]),
        (["max_tokens", "max_completion_tokens"], ["max_tokens", "max_completion_tokens", None]),
    ],
)
async def test_a_limit_that_nobody_wrote_down_is_given_up_when_it_is_refused(
    refused: list[str], sent: list[str | None]
) -> None:
    def picky(body: Body) -> Body:
        for name in refused:
            if name in body:
                raise Refused(400, f"Unsupported parameter: '{name}' is not supported with this model.")
        return {"content": "done"}

    limits = ("max_tokens", "max_completion_tokens")
    with probed_server(picky) as server:
        spec = ModelSpec(name="m-1", url=server.url)
        model = OpenAIModel(spec, NO_ENDPOINT, MemoryBlobs())
        for _ in range(2):
            assert (await model.complete(saying("hello"), _ignore)).content == "done"
        await model.close()
        # What was found out is known at the second call.
        asked = [next((name for name in limits if name in body), None) for body in server.asked]
        assert asked == [*sent, sent[-1]]
        written = msgspec.structs.replace(spec, max_tokens=9)
        asked_for = len(server.asked)
        if len(refused) < 2:
            # One that the spec sets changes its name, and stays.
            assert (await ask(written, saying("hello")))[0].content == "done"
            assert server.asked[-1][sent[-1] or ""] == 9
        else:
            with pytest.raises(ModelRefused, match=r"model\.token_limit"):
                await ask(written, saying("hello"))
            assert all(body.keys() & {*limits} for body in server.asked[asked_for:])


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens is too large: 4096. This model supports at most 2048 completion tokens.",
        "Range of max_tokens should be [1, 2048]",
        "max_tokens参数非法。取值范围为[1, 2048]",
        "max_tokens must be <= 2048",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 2,048]",
        "max_tokens is too large",
    ],
)
async def test_a_limit_that_is_out_of_range_becomes_the_named_one_unless_the_spec_sets_it(words: str) -> None:
    def picky(body: Body) -> Body:
        if body.get("max_tokens", 0) > 2048:
            raise Refused(400, words)
        return {"content": "done"}

    with probed_server(picky) as server:
        spec = ModelSpec(name="m-1", url=server.url)
        model = OpenAIModel(spec, NO_ENDPOINT, MemoryBlobs())
        for _ in range(2):
            assert (await model.complete(saying("hello"), _ignore)).content == "done"
        await model.close()
        most = 2048 if "2" in words else None
        assert [body.get("max_tokens") for body in server.asked] == [4096, most, most]
        assert not any("max_completion_tokens" in body for body in server.asked)
        with pytest.raises(ModelRefused):
            await ask(msgspec.structs.replace(spec, max_tokens=4096), saying("hello"))


ENDPOINTS_SAY = {
    "its context": "maximum context length is 1024 tokens",
    "its context and the request": "maximum context length is 1024 tokens (900 in the messages)",
    "no number": "too many tokens",
}


@pytest.mark.parametrize(
    ("said", "limits"),
    [
        ("its context", [4096, 256]),
        ("its context and the request", [4096, 124]),
        ("no number", [4096, 1024, 256]),
    ],
)
async def test_an_endpoint_with_less_context_than_the_spec_says_is_asked_for_less(said: str, limits: list[int]) -> None:
    """Never for an answer without a limit, which may not end."""
    asked: list[int] = []

    def small(body: Body) -> Body:
        asked.append(body["max_tokens"])
        if body["max_tokens"] > 1_000:
            raise Refused(400, f"no room for the answer: {ENDPOINTS_SAY[said]}")
        return {"content": "done"}

    def full(body: Body) -> Body:
        asked.append(body["max_tokens"])
        raise Refused(400, "too many tokens")

    with probed_server(small) as server:
        reply, _ = await ask(ModelSpec(name="m-1", url=server.url), saying("hello"))
    assert reply.content == "done"
    assert asked[: len(limits)] == limits[: len(asked)]
    asked.clear()
    with probed_server(full) as server, pytest.raises(ModelRefused) as refused:
        await ask(ModelSpec(name="m-1", url=server.url), saying("hello"))
    assert refused.value.too_long
    assert asked == [4096, 1024, 256, 64, 16]


@pytest.mark.parametrize(("named", "told"), [({}, 8_192), ({"context": 4_000}, None)])
async def test_the_context_that_the_endpoint_lists_is_told_with_each_answer(
    named: dict[str, Any], told: int | None
) -> None:
    with probed_server(lambda _: {"content": "done"}) as server:
        server.entry = {"id": "some.gguf", "object": "model", "meta": {"n_ctx_train": 32_768, "n_ctx": 8_192}}
        model = OpenAIModel(ModelSpec(name="m-1", url=server.url, **named), ModelSettings(), MemoryBlobs())
        await model.load()
        reply = await model.complete(saying("hello"), _ignore)
        await model.close()
    assert reply.context == told
    assert server.asked[0]["max_tokens"] == (2_048 if told else 1_000)


async def test_an_answer_that_no_limit_of_the_endpoint_ends_is_cut_here() -> None:
    with probed_server(lambda _: {"content": "and on " * 20_000}) as server:
        reply, _ = await ask(ModelSpec(name="m-1", url=server.url, max_tokens=100), saying("hello"))
    assert reply.finish_reason == "length"


async def _ignore(_: str, *, of_answer: bool = False, chunk: object = None) -> None: ...


async def test_images_travel_as_data_urls(server: ModelServer, api: ModelApi) -> None:
    spec, blobs = spec_for(server, api=api), MemoryBlobs()

    def showing(ref: str) -> ModelRequest:
        parts = [{"type": "text", "text": "picture"}, {"type": "image_url", "image_url": {"url": ref}}]
        return ModelRequest(messages=[{"role": "user", "content": parts}])

    request = showing(await blobs.put(PNG))
    reply, _ = await ask(spec, request, blobs)
    assert reply.content == "1 data:image/png;base64,iVBORw0KGgoAAAAAAAAAAAAAAAAAAAAA"
    assert request.messages[0]["content"][1]["image_url"]["url"].startswith("blob:")
    reply, _ = await ask(spec, showing("https://example.com/a.png"), blobs)
    assert reply.content == "1 https://example.com/a.png"
    with pytest.raises(ModelRefused, match=r"PNG, JPEG, GIF.*WebP"):
        await ask(spec, showing(await blobs.put(b"text")), blobs)
    with pytest.raises(ModelRefused, match="blob:0"):
        await ask(spec, showing("blob:0"), blobs)


def test_an_idle_model_does_not_load_the_client() -> None:
    code = (
        "import sys; from cadre.adapters.models.openai_model import OpenAIModel\n"
        "from cadre.settings import ModelSettings; from cadre.spec.model import ModelSpec\n"
        "OpenAIModel(ModelSpec(), ModelSettings(), None)\n"
        "print([name for name in ('openai', 'httpx2', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_model_that_is_loaded_need_not_import_anything_for_its_first_request() -> None:
    code = (
        "import asyncio, sys; from cadre.adapters.models.openai_model import OpenAIModel\n"
        "from cadre.engine.model_request import ModelRequest; from cadre.errors import ModelUnavailable\n"
        "from cadre.settings import ModelSettings; from cadre.spec.model import ModelSpec\n"
        "async def ask():\n"
        "    model = OpenAIModel(ModelSpec(), ModelSettings(url='http://127.0.0.1:1/v1', name='m'), None)\n"
        "    await model.load()\n"
        "    loaded = set(sys.modules)\n"
        "    try:\n"
        "        await model.complete(ModelRequest(messages=[{'role': 'user', 'content': 'hi'}]), None)\n"
        "    except ModelUnavailable:\n"
        "        print('openai' in loaded, sorted(set(sys.modules) - loaded))\n"
        "asyncio.run(ask())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True []"
