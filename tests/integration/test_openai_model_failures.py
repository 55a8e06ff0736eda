"""OpenAIModel with the real client: refusals, cuts, silence, cancellation, and what learns of them."""

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from cadre.adapters.models.openai_model import OpenAIModel
from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelRefused, ModelUnavailable
from cadre.spec.model import ModelApi, ModelSpec
from cadre.testing import ModelServer
from harness.memory_ports import MemoryBlobs
from harness.texts import holds
from integration.model_calls import ADD, NO_ENDPOINT, ask, saying, spec_for

SCRIPT = """
rules:
  - {name: slow, match: {user: ^slow}, reply: {content: "one two three four five six", chunk: 4, delay: 4}}
  - {name: late, match: {user: ^late}, reply: {content: never seen, latency: 60}}
  - {name: cut, match: {user: ^cut}, reply: {content: "this breaks off in the middle of it", drop_after: 1}}
  - name: limited
    match: {user: ^limited}
    reply:
      - {error: {status: 429, message: slow down, headers: {retry-after-ms: 1500}}}
      - {error: {status: 429, headers: {retry-after: 7}}}
      - {error: {status: 429, headers: {retry-after: "Fri, 01 Jan 2100 00:00:00 GMT"}}}
      - {error: {status: 429}}
      - {content: recovered}
  - {name: failing, match: {user: ^failing}, reply: {error: {status: 500, message: the server fell over}}}
  - name: no stop
    match: {user: ^no stop}
    reply: {error: {status: 400, message: "Unsupported parameter: 'stop' is not supported with this model."}}
  - {name: no choice, match: {user: ^no choice}, reply: {error: {status: 400, message: bad, param: tool_choice}}}
  - {name: bad key, match: {user: ^bad key}, reply: {error: {status: 401, message: "Incorrect key: s3cret-key"}}}
"""


async def test_a_rate_limit_says_when_to_come_back(server: ModelServer, api: ModelApi) -> None:
    waits: list[float | None] = []
    for _ in range(4):
        with pytest.raises(ModelUnavailable) as caught:
            await ask(spec_for(server, api=api), saying("limited"))
        assert caught.value.rate_limited
        assert caught.value.status == 429
        waits.append(caught.value.retry_after)
    assert waits[:2] == [1.5, 7.0]
    assert waits[2] is not None
    assert waits[2] > 1e9
    assert waits[3] is None
    reply, _ = await ask(spec_for(server, api=api), saying("limited"))
    assert reply.content == "recovered"
    # The client itself has tried nothing again.
    assert len(server.journal()) == 5


async def test_a_server_error_is_worth_another_try(server: ModelServer, api: ModelApi) -> None:
    with pytest.raises(ModelUnavailable, match=r"answered 500: the server fell over$") as caught:
        await ask(spec_for(server, api=api), saying("failing"))
    assert (caught.value.status, caught.value.rate_limited, caught.value.retry_after) == (500, False, None)
    assert len(server.journal()) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_cut_in_the_middle(server: ModelServer, stream: bool, api: ModelApi) -> None:
    with pytest.raises(ModelUnavailable, match="broke off"):
        await ask(spec_for(server, api=api, stream=stream), saying("cut"))
    assert server.journal()[0]["outcome"] == "cut"


async def test_silence_longer_than_the_timeout(server: ModelServer, api: ModelApi) -> None:
    with pytest.raises(ModelUnavailable, match=r"sent nothing for 0\.2 s"):
        await ask(spec_for(server, api=api, timeout=0.2), saying("late"))
    with pytest.raises(ModelUnavailable, match=r"sent nothing for 0\.2 s"):
        await ask(spec_for(server, api=api, timeout=0.2), saying("slow"))
    assert [line["outcome"] for line in server.journal()] == ["left", "left"]


@pytest.mark.parametrize("stream", [True, False])
async def test_cancelling_before_the_first_byte_closes_the_connection(
    server: ModelServer, stream: bool, api: ModelApi
) -> None:
    model = OpenAIModel(spec_for(server, api=api, stream=stream), NO_ENDPOINT, MemoryBlobs())

    async def hear(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
        raise AssertionError(f"nothing should come, and {text!r} came")

    # The client is warm, so that the deadline falls into the request.
    with pytest.raises(ModelRefused):
        await model.complete(saying("bad key"), hear)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await model.complete(saying("late"), hear)
    assert [line["outcome"] for line in await asyncio.to_thread(server.journal)] == ["answered", "left"]
    await model.close()


async def test_cancelling_in_the_middle_of_a_stream_closes_it(server: ModelServer, api: ModelApi) -> None:
    started = asyncio.Event()

    async def hear(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
        started.set()

    model = OpenAIModel(spec_for(server, api=api), NO_ENDPOINT, MemoryBlobs())
    call = asyncio.create_task(model.complete(saying("slow"), hear))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [line["outcome"] for line in await asyncio.to_thread(server.journal)] == ["left"]
    await model.close()


async def test_nobody_listens(api: ModelApi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    spec = ModelSpec(name="any", url=f"http://user:hidden@127.0.0.1:{port}/v1?key=hidden", api=api)
    with pytest.raises(ModelUnavailable) as caught:
        await ask(spec, saying("plain"))
    assert holds(str(caught.value), f"http://127.0.0.1:{port}/v1", "CADRE_MODEL_URL")


async def test_no_endpoint_is_configured() -> None:
    with pytest.raises(ModelRefused, match=r"^no model endpoint: set CADRE_MODEL_URL or model\.url"):
        await ask(ModelSpec(name="any"), saying("plain"))
    with pytest.raises(ModelRefused, match=r"'localhost:1'.*http://"):
        await ask(ModelSpec(name="any", url="localhost:1"), saying("plain"))
    with pytest.raises(ModelRefused, match=r"^no model name"):
        await ask(ModelSpec(url="http://127.0.0.1:1/v1"), saying("plain"))


async def test_a_wrong_path_says_what_to_check(server: ModelServer, api: ModelApi) -> None:
    with pytest.raises(ModelRefused, match=r"answered 404: .*; check the URL \(most end in /v1\)"):
        await ask(ModelSpec(name="any", url=server.url.removesuffix("/v1"), api=api), saying("plain"))


async def test_a_refused_parameter_names_the_key_to_change(server: ModelServer) -> None:
    with pytest.raises(ModelRefused, match=r"model\.stop: false"):
        await ask(spec_for(server, stop=True), ModelRequest(messages=saying("no stop").messages, stop=["X"]))
    with pytest.raises(ModelRefused, match=r"model\.tool_choice: auto"):
        await ask(
            spec_for(server, tool_choice="required"),
            ModelRequest(messages=saying("no choice").messages, tools=[ADD]),
        )


async def test_the_key_is_in_no_error(server: ModelServer, monkeypatch: pytest.MonkeyPatch, api: ModelApi) -> None:
    monkeypatch.setenv("MY_KEY", "s3cret-key")
    with pytest.raises(ModelRefused, match=r"\*\*\*.* MY_KEY") as caught:
        await ask(spec_for(server, api=api, key_env="MY_KEY"), saying("bad key"))
    assert caught.value.__suppress_context__
    monkeypatch.setenv("MY_KEY", "two\nlines")
    with pytest.raises(ModelRefused, match="the key in MY_KEY holds characters") as caught:
        await ask(spec_for(server, api=api, key_env="MY_KEY"), saying("plain"))
    assert "lines" not in str(caught.value)


async def test_an_answer_that_drips_for_ever(server: ModelServer) -> None:
    with pytest.raises(ModelUnavailable, match=r"2 s; model\.seconds"):
        await ask(spec_for(server, seconds=2.0), saying("slow"))
    assert server.journal()[0]["outcome"] == "left"


KEPT = "T.\n<code>\nx = 'Observation: </code>'\n</code>"


@asynccontextmanager
async def server_that_sends(
    body: str, kind: str = "text/event-stream", *, missing: int = 0, stays: bool = False
) -> AsyncIterator[ModelSpec]:
    """An endpoint that answers everything with the same bytes, as no scripted model would.

    `missing`: bytes that it announces and never sends; `stays`: it waits for the client to close the connection.
    """

    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(request.partition("content-length: ")[2].split()[0]))
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body) + missing}\r\n\r\n"
        writer.write((head + body).encode("latin-1"))
        if stays:
            await reader.read()
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield ModelSpec(name="any", url=f"http://127.0.0.1:{port}/v1")
        await closed.wait()


async def test_a_stream_that_runs_on_behind_its_block_is_left() -> None:
    """The endpoint goes on for ever: it ends when the client closes the connection."""
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(request.partition("content-length: ")[2].split()[0]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for text in itertools.chain([f"{KEPT}\n"], itertools.repeat("Observation: 5\n")):
                chunk = {"choices": [{"delta": {"content": text}}]}
                writer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        left.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        spec = ModelSpec(name="any", url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        asked = saying("Write code.")
        asked.block = ("<code>", "</code>")
        reply, heard = await ask(spec, asked)
        await left.wait()
    assert (reply.content, "".join(heard), reply.finish_reason) == (KEPT, KEPT, "stop")
    assert reply.usage.total_tokens > 0


def chat(text: str) -> str:
    chunk = {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}
    return f"data: {json.dumps(chunk)}\n\n"


@asynccontextmanager
async def endpoint(
    answer: Callable[[dict[str, Any]], tuple[int, str]], name: str = "any"
) -> AsyncIterator[tuple[ModelSpec, list[dict[str, Any]]]]:
    """An endpoint that answers each body with a status and a text."""
    bodies: list[dict[str, Any]] = []
    open_connections: list[asyncio.Future[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = asyncio.get_running_loop().create_future()
        open_connections.append(ended)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(request.partition("content-length: ")[2].split("\r\n")[0] or 0)
                status, sent = 200, '{"data": []}'
                if request.startswith("post"):
                    bodies.append(json.loads(await reader.readexactly(size)))
                    status, sent = answer(bodies[-1])
                kind = "text/event-stream" if sent.startswith("data:") else "application/json"
                head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(sent.encode())}\r\n\r\n"
                writer.write((head + sent).encode())
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield ModelSpec(name=name, url=f"http://127.0.0.1:{port}/v1"), bodies
        await asyncio.gather(*open_connections)


@pytest.mark.parametrize("words", ["response_format is not supported", "Invalid parameter"])
@pytest.mark.parametrize("is_needed", [True, False])
async def test_a_form_that_is_refused_is_left_out_where_it_may(words: str, is_needed: bool) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, str]:
        refused = json.dumps({"error": {"message": words}})
        return (400, refused) if "response_format" in body else (200, chat('{"n": 1}'))

    asked = saying("How many?")
    asked.schema, asked.is_form_needed = {"type": "object"}, is_needed
    async with endpoint(answer) as (spec, bodies):
        if is_needed:
            with pytest.raises(ModelRefused):
                await ask(spec, asked)
        else:
            reply, _ = await ask(spec, asked)
            assert reply.content == '{"n": 1}'
    assert ("response_format" in bodies[-1]) is is_needed


async def test_a_model_whose_template_opens_its_thoughts_is_learned() -> None:
    sent = chat("SECRET</think>4")
    async with endpoint(lambda body: (200, sent)) as (spec, _):
        heard: list[str] = []

        async def hear(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
            heard.append(text)

        model = OpenAIModel(spec, NO_ENDPOINT, MemoryBlobs())
        await model.complete(saying("Hi"), hear)
        heard.clear()
        reply = await model.complete(saying("Hi"), hear)
        await model.close()
    assert (reply.content, heard) == ("SECRET</think>4", ["4"])


@pytest.mark.parametrize(
    ("body", "kind", "complaint"),
    [
        ("data: [DONE]\n\n", "text/event-stream", "holds no choice"),
        ("<html>welcome</html>", "text/html", r"HTML.* /v1"),
        ("data: {half\n\n", "text/event-stream", "is malformed"),
        ('data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', "text/event-stream", "is malformed"),
        (
            '{"choices": [{"message": {"content": "\xff"}}]}',
            "application/json",
            "is malformed|holds no choice",
        ),
        (
            'data: {"choices": [{"delta": {"content": "a"}}]}\n\n',
            "text/event-stream",
            "without a finish_reason",
        ),
        ('data: {"error": {"message": "overloaded"}}\n\n', "text/event-stream", "answered 500: overloaded"),
        ('data: {"error": {"message": "slow", "code": 429}}\n\n', "text/event-stream", "answered 429: slow"),
    ],
)
async def test_a_stream_that_is_no_answer(body: str, kind: str, complaint: str) -> None:
    async with server_that_sends(body, kind) as spec:
        with pytest.raises(ModelUnavailable, match=complaint) as caught:
            await ask(spec, saying("plain"))
    assert caught.value.rate_limited == ("429" in complaint)


WHOLE = '{"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}'
CHUNK = 'data: {"choices": [{"delta": {"content": "Hi"}, "finish_reason": %s}]}\n\n'


@pytest.mark.parametrize(
    ("body", "stream"),
    [
        (CHUNK % "null" + "data: [DONE]\n\n", True),
        (CHUNK % "null" + "data:[DONE]", True),
        (": keep-alive\n\n\n" + CHUNK % '"stop"', True),
        ("\ufeff" + (CHUNK % '"stop"').replace("\n", "\r\n"), True),
        ((CHUNK % '"stop"').replace("\n", "\r"), True),
        ("event: message\nid: 1\n" + CHUNK % '"stop"' + "event: ping\ndata: {}\n\ndata: null\n\n", True),
        (WHOLE, True),
        ("\n\n\n  " + WHOLE + "\n", True),
        (WHOLE, False),
        (CHUNK % '"stop"', False),
    ],
)
async def test_an_answer_is_read_by_what_it_is(body: str, stream: bool) -> None:
    """Not by what was asked for, nor by its content type."""
    async with server_that_sends(body.encode().decode("latin-1"), "text/plain") as spec:
        reply, _ = await ask(msgspec.structs.replace(spec, stream=stream), saying("plain"))
    assert (reply.content, reply.finish_reason) == ("Hi", "stop")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        '{"error": {"message": "Insufficient credits.", "code": 402}}',
        'data: {"error": {"message": "Insufficient credits.", "code": 402}}\n\n',
        'event: error\ndata: {"message": "Insufficient credits.", "code": 402}\n\n',
        'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "error", "error":'
        ' {"message": "Insufficient credits.", "code": "insufficient_credits"}}]}\n\n',
    ],
)
async def test_an_error_within_200_keeps_its_words(body: str, stream: bool) -> None:
    async with server_that_sends(body) as spec:
        with pytest.raises(ModelRefused, match=r"answered 402: Insufficient credits\.; .*model\.fallbacks"):
            await ask(msgspec.structs.replace(spec, stream=stream), saying("plain"))


@pytest.mark.parametrize("ends", ['"stop"', "null"])
async def test_a_whole_answer_does_not_wait_for_an_end_that_never_comes(ends: str) -> None:
    """An endpoint that keeps the connection open behind `[DONE]`, or breaks it behind the finish_reason."""
    body = CHUNK % ends + ("data: [DONE]\n\n" if ends == "null" else "")
    async with server_that_sends(body, missing=100, stays=ends == "null") as spec:
        reply, _ = await ask(spec, saying("plain"))
    assert reply.content == "Hi"


async def test_an_answer_that_a_content_filter_cut_is_none() -> None:
    body = 'data: {"choices": [{"delta": {"content": "half"}, "finish_reason": "content_filter"}]}\n\n'
    async with server_that_sends(body, "text/event-stream") as spec:
        with pytest.raises(ModelRefused, match=r"content filter of .* withheld the answer .*model\.fallbacks"):
            await ask(spec, saying("plain"))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("{half", "application/json"),
        ("<html>", "text/html"),
        ("{}", "application/json"),
        ("7", "application/json"),
    ],
)
async def test_a_whole_answer_that_is_none(body: str, kind: str, api: ModelApi) -> None:
    async with server_that_sends(body, kind) as spec:
        with pytest.raises(ModelUnavailable, match=r"is malformed|cannot be used"):
            await ask(msgspec.structs.replace(spec, stream=False, api=api), saying("plain"))
