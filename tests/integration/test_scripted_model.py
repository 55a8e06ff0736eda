"""The scripted model over HTTP: auto mode, recordings, errors, and that it says what it is."""

import asyncio
import json
import socket
from pathlib import Path

import httpx2
import msgspec
import openai
import pytest

from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelRefused, ModelUnavailable, SetupError
from cadre.ports import ModelReply
from cadre.spec.model import ModelSpec
from cadre.testing import ModelServer, running_model
from cadre_scripted_model import NOT_AN_AI
from cadre_scripted_model.record_replay import Cassette
from integration.model_calls import ADD, SEARCH, ask, saying, spec_for
from integration.raw_endpoint import raw_endpoint

SCRIPT = """
rules:
  - {name: plain, match: {user: ^plain}, reply: {content: "The answer to {{ user }} is 42."}}
  - name: two calls
    match: {user: ^sum, turn: 0, tools: [add, search]}
    reply:
      content: Both at once.
      tool_calls:
        - {name: add, arguments: {a: 2, b: "{{ number(user) }}"}}
        - {name: search, arguments: {query: "what is {{ user.split()[-1] }}?"}}
  - {name: failing, match: {user: ^failing}, reply: {error: {status: 500, message: the server fell over}}}
  - {name: odd template, match: {user: ^odd}, reply: {content: "{{ results.nothing[0] }}"}}
"""


async def test_auto_mode_calls_each_tool_and_final_answer_last(server: ModelServer) -> None:
    final = json.loads(json.dumps(ADD).replace('"add"', '"final_answer"'))
    final["function"]["parameters"] = {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
    }
    request = ModelRequest(messages=[{"role": "user", "content": "anything"}], tools=[final, ADD])
    first, _ = await ask(spec_for(server), request)
    assert [(call.name, call.arguments) for call in first.calls] == [("add", '{"a": 1, "b": 1}')]
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    request.messages += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "x", "content": "two"},
    ]
    last, _ = await ask(spec_for(server), request)
    assert last.calls[0].name == "final_answer"
    said = json.loads(str(last.calls[0].arguments))["answer"]
    assert said.startswith(f"[{NOT_AN_AI}]")
    assert "add: two" in said


def texts_in(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


async def test_recorded_answers_are_replayed_without_the_upstream(server: ModelServer, tmp_path: Path) -> None:
    asked = ["plain one", "plain two", "sum 3"]

    async def talk(url: str) -> list[ModelReply]:
        replies = []
        for text in asked:
            request = ModelRequest(messages=saying(text).messages, tools=[ADD, SEARCH])
            reply, _ = await ask(ModelSpec(name="any", url=url), request)
            # The two are at different ports, and not equally fast.
            replies.append(msgspec.structs.replace(reply, endpoint="", server="", first_seconds=None))
        return replies

    with running_model(
        "--mode", "record", "--cassette", tmp_path, "--upstream", server.url, CADRE_MODEL_KEY="upstream-key"
    ) as recorder:
        recorded = await talk(recorder.url)
        with pytest.raises(ModelUnavailable):
            await ask(spec_for(recorder), saying("failing"))
    kept = texts_in(tmp_path)
    assert len(kept) == 4, "a failure is an answer too"
    assert not any("upstream-key" in text for text in kept)
    asked.reverse()
    with running_model("--mode", "replay", "--cassette", tmp_path) as player:
        assert await talk(player.url) == recorded[::-1]
        with pytest.raises(ModelRefused, match=r"answered 424: no cassette .* 'plain three'.*is nearest") as caught:
            await ask(spec_for(player), saying("plain three"))
        assert caught.value.status == 424


@pytest.mark.parametrize("body", [b'{"error": {"message": "wrong key upstream-key"}}', b"\xff upstream-key \x00"])
async def test_an_error_is_recorded_byte_for_byte_but_for_the_key(tmp_path: Path, body: bytes) -> None:
    async with raw_endpoint(400, "application/json", body) as url:
        options = ("--mode", "record", "--cassette", tmp_path, "--upstream", url)
        with running_model(*options, CADRE_MODEL_KEY="upstream-key") as recorder, pytest.raises(ModelRefused):
            await ask(spec_for(recorder, max_tokens=100), saying("plain"))
    [kept] = [msgspec.json.decode(text, type=Cassette) for text in texts_in(tmp_path)]
    assert (kept.status, kept.endpoint, kept.origin) == (400, "127.0.0.1", "recorded")
    assert kept.content == body.replace(b"upstream-key", b"***")


KEY = 'sec"ret/7'
GIVEN = "sk-proj-0123456789abcdefgh"
"""A key that is not that of the recorder."""


@pytest.mark.parametrize("stream", [True, False])
async def test_a_recording_is_a_report_without_secrets(tmp_path: Path, stream: bool) -> None:
    """The endpoint repeats what it was sent, in the forms of JSON and of URLs."""
    said = f"{json.dumps(KEY)[1:-1]} sec%22ret%2F7 https://h/v1?key=query-key&n=1 Bearer abc.def-123 {GIVEN} at-pass"
    chunk = f'{{"choices": [{{"delta": {{"content": "{said}"}}, "finish_reason": "stop"}}]}}'
    body = f"data: {chunk}\n\ndata: [DONE]\n\n" if stream else chunk.replace('"delta"', '"message"')
    kind = "text/event-stream" if stream else "application/json"
    async with raw_endpoint(200, kind, body.encode()) as url:
        upstream = f"{url.replace('//', '//me:at-pass@')}?key=query-key&api-version=2026-01-01"
        options = ("--mode", "record", "--cassette", tmp_path, "--upstream", upstream)
        asked = saying(f"plain {KEY} {GIVEN}")
        with running_model(*options, CADRE_MODEL_KEY=KEY) as recorder:
            await ask(spec_for(recorder, stream=stream), asked)
    [text] = texts_in(tmp_path)
    kept = msgspec.json.decode(text, type=Cassette)
    assert kept.content.decode() == body.replace(said, "*** *** https://h/v1?key=***&n=1 Bearer *** *** ***")
    assert kept.prompt == "plain *** ***"
    for secret in (KEY, "ret/7", "query-key", GIVEN, "at-pass", "abc.def"):
        assert secret not in text
    with running_model("--mode", "replay", "--cassette", tmp_path, CADRE_MODEL_KEY=KEY) as player:
        reply, _ = await ask(spec_for(player, stream=stream), asked)
    assert reply.content.startswith("*** *** https://h")


async def test_the_query_of_the_upstream_stays_behind_its_path(tmp_path: Path) -> None:
    paths: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[1])
        body = b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}'
        head = f"HTTP/1.1 200 X\r\nretry-after: 7\r\nx-ratelimit-reset-tokens: 3s\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as upstream:
        url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/v1/?key=a1"
        with running_model("--mode", "record", "--cassette", tmp_path, "--upstream", url) as recorder:
            await ask(spec_for(recorder), saying("plain"))
    assert paths == ["/v1/chat/completions?key=a1"]
    [kept] = [msgspec.json.decode(text, type=Cassette) for text in texts_in(tmp_path)]
    assert kept.headers == {"retry-after": "7", "x-ratelimit-reset-tokens": "3s"}


async def test_a_stream_that_the_agent_leaves_is_recorded_as_far_as_it_read(tmp_path: Path) -> None:
    begun = b'data: {"choices": [{"delta": {"content": "<code>\\nx = 1\\n</code>\\nObservation: 5"}}]}\n\n'
    left = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n" + begun)
        await writer.drain()
        while await reader.read(65_536):
            pass
        left.set()
        writer.close()

    request = msgspec.structs.replace(saying("Go on."), block=("<code>", "</code>"))
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as upstream:
        url = f"http://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/v1"
        with running_model("--mode", "record", "--cassette", tmp_path, "--upstream", url) as recorder:
            recorded, _ = await ask(spec_for(recorder), request)
            await asyncio.wait_for(left.wait(), 30)
    assert recorded.content == "<code>\nx = 1\n</code>"
    [kept] = [msgspec.json.decode(text, type=Cassette) for text in texts_in(tmp_path)]
    assert kept.content == begun
    with running_model("--mode", "replay", "--cassette", tmp_path) as player:
        replayed, _ = await ask(spec_for(player), request)
    assert replayed.content == recorded.content


async def test_an_unreachable_upstream_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    with (
        running_model("--mode", "record", "--cassette", tmp_path, "--upstream", url) as recorder,
        pytest.raises(ModelUnavailable, match=r"502.*127\.0\.0\.1"),
    ):
        await ask(spec_for(recorder), saying("plain"))


async def test_a_template_that_fails_names_its_rule(server: ModelServer) -> None:
    with pytest.raises(ModelRefused, match=r"rule 'odd template': .*nothing"):
        await ask(spec_for(server), saying("odd"))


async def test_a_request_that_its_context_has_no_room_for(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("context: 500\n" + SCRIPT)
    with running_model("--script", script) as narrow:
        with pytest.raises(ModelRefused, match="500") as caught:
            await ask(spec_for(narrow), saying("plain " + "x" * 2_000))
        assert caught.value.too_long
        reply, _ = await ask(spec_for(narrow), saying("plain"))
        assert reply.content == "The answer to plain is 42."
        lines = [(line["rule"], line["status"], line["tokens"]) for line in narrow.journal()]
    assert lines == [("context", 400, 502), ("plain", 200, 2)]
    with running_model("--script", script, "--context", "600") as wider:
        await ask(spec_for(wider), saying("plain " + "x" * 2_000))


async def test_it_says_everywhere_that_it_is_no_ai(server: ModelServer) -> None:
    async with openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as client:
        models = await client.models.list()
        raw = await client.chat.completions.with_raw_response.create(
            model="gpt", messages=[{"role": "user", "content": "hello"}]
        )
    assert [(model.id, model.owned_by) for model in models.data] == [("scripted", f"cadre {NOT_AN_AI}")]
    assert raw.headers["x-cadre-scripted-model"] == "not-an-ai"
    content = raw.parse().choices[0].message.content
    assert content is not None
    assert content.startswith(f"[{NOT_AN_AI}]")


def test_errors_have_openais_shape(server: ModelServer) -> None:
    url = f"{server.url}/chat/completions"
    for body, param in ((b"{", None), (b"{}", "messages"), (b'{"messages": [1]}', "messages")):
        answer = httpx2.post(url, content=body)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert httpx2.get(f"{server.url}/nothing").json()["error"]["message"].startswith("no GET /v1/nothing here")


def test_an_open_answer_does_not_keep_it_from_stopping_quietly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("rules: [{reply: {content: never ending, delay: 60}}]")
    body = {"stream": True, "messages": [{"role": "user", "content": "x"}]}
    with httpx2.Client(timeout=10) as client, running_model("--script", script) as server:
        request = client.build_request("POST", f"{server.url}/chat/completions", json=body)
        answer = client.send(request, stream=True)
        assert next(answer.iter_lines()).startswith("data: ")
    answer.close()
    shown = capfd.readouterr().err
    assert "AI" in shown
    assert len(shown.splitlines()) == 2


def test_one_that_does_not_start_says_so(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="did not start"), running_model("--script", tmp_path / "none.yaml"):
        pass
