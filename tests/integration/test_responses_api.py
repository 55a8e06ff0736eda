"""Tests of what only the Responses API has, through the real client: form of requests, items, native tools, failed
answers."""

import json
from typing import Any

import msgspec
import pytest

from cadre.engine.model_request import ModelRequest
from cadre.errors import ModelRefused, ModelUnavailable
from cadre.spec.model import ModelSpec, NamedFunction
from cadre.testing import ModelServer
from integration.model_calls import ADD, ask, saying, spec_for
from integration.test_openai_model_failures import server_that_sends

SCRIPT = """
rules:
  - {name: options, match: {user: ^options}, reply: {content: "{{ body | tojson }}"}}
  - name: searched
    match: {user: ^searched, turn: 0}
    reply:
      items:
        - {type: reasoning, id: rs_1, summary: [{type: summary_text, text: Look.}], encrypted_content: opaque}
        - {type: web_search_call, id: ws_1, status: completed, action: {type: search, query: moss}}
      content: Moss is green.
      annotations: [{type: url_citation, url: "https://example.com", title: Moss, start_index: 0, end_index: 4}]
      tool_calls: [{name: add, arguments: {a: 1, b: 2}}]
  - {name: told again, match: {user: ^searched}, reply: {content: "{{ body.input | tojson }}"}}
  - name: plain models
    match: {user: ^unreasoning, times: 1}
    reply: {error: {status: 400, message: Encrypted content is not supported with this model.}}
  - {name: plain models again, match: {user: ^unreasoning}, reply: {content: "{{ body.include is defined }}"}}
  - {name: length, match: {user: ^length}, reply: {content: half an, finish: length}}
  - {name: filtered, match: {user: ^filtered}, reply: {content: half an, finish: content_filter}}
  - {name: fails, match: {user: ^fails}, reply: {content: half, finish: failed}}
  - {name: error, match: {user: ^error}, reply: {content: half, finish: error}}
  - {name: effort, match: {user: ^effort}, reply: {error: {status: 400, message: bad, param: reasoning.effort}}}
  - name: long
    match: {user: ^long}
    reply: {error: {status: 400, code: context_length_exceeded, message: Your input exceeds the context window.}}
"""

SEARCH_TOOL = {"type": "web_search", "filters": {"allowed_domains": ["example.com"]}}


def responses(server: ModelServer, **fields: Any) -> ModelSpec:
    return spec_for(server, api="responses", **fields)


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({"max_tokens": 90}, {"max_output_tokens": 90}),
        ({"max_tokens": 9, "token_limit": "max_completion_tokens"}, {"max_output_tokens": 16}),
        ({"extra_body": {"max_output_tokens": 70}}, {"max_output_tokens": 70}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"tool_choice": NamedFunction("add")}, {"tool_choice": {"type": "function", "name": "add"}}),
        (
            {"extra_body": {"include": ["web_search_call.action.sources"]}},
            {"include": ["web_search_call.action.sources"]},
        ),
    ],
)
async def test_what_the_spec_asks_of_each_request(
    server: ModelServer, fields: dict[str, Any], sent: dict[str, Any]
) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *saying("options").messages]
    reply, _ = await ask(
        responses(server, native_tools=[SEARCH_TOOL], **fields), ModelRequest(messages=messages, tools=[ADD])
    )
    body = json.loads(reply.content)
    assert body.pop("input") == messages
    assert body.pop("tools") == [{"type": "function", "strict": False, **ADD["function"]}, SEARCH_TOOL]  # type: ignore[dict-item]
    usual = {
        "model": "any",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 4_096,
    }
    assert body == usual | sent


async def test_json_is_asked_for_as_the_format_of_the_text(server: ModelServer) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    forms = []
    for more in ({"schema": schema}, {"json_object": True}):
        reply, _ = await ask(responses(server), ModelRequest(messages=saying("options").messages, **more))
        forms.append(json.loads(reply.content)["text"]["format"])
    assert forms == [
        {"type": "json_schema", "name": "answer", "strict": True, "schema": schema},
        {"type": "json_object"},
    ]


async def test_native_tools_go_to_chat_completions_as_they_are(server: ModelServer) -> None:
    spec = spec_for(server, native_tools=[SEARCH_TOOL])
    for request, tools in (
        (ModelRequest(messages=saying("options").messages, tools=[ADD]), [ADD, SEARCH_TOOL]),
        (saying("options"), [SEARCH_TOOL]),
    ):
        reply, _ = await ask(spec, request)
        assert json.loads(reply.content)["tools"] == tools
    without = ModelRequest(messages=saying("options").messages, native_tools=False)
    reply, _ = await ask(spec, without)
    assert "tools" not in json.loads(reply.content)
    cited, _ = await ask(spec, saying("searched"))
    assert cited.items[0]["annotations"][0]["url"] == "https://example.com"


@pytest.mark.parametrize("stream", [True, False])
async def test_items_are_kept_and_sent_back_as_they_came(server: ModelServer, stream: bool) -> None:
    spec = responses(server, stream=stream)
    request = ModelRequest(messages=saying("searched").messages, tools=[ADD])
    reply, heard = await ask(spec, request)
    assert "".join(heard) == reply.content == "Moss is green."
    assert [item["type"] for item in reply.items] == [
        "reasoning",
        "web_search_call",
        "message",
        "function_call",
    ]
    assert "content" not in reply.items[2]
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
    answered = {"role": "assistant", "content": reply.content, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "3"}

    async def sent(to: ModelSpec = spec) -> list[dict[str, Any]]:
        messages = [*request.messages, {**answered, "items": reply.items, "items_of": reply.endpoint}, result]
        again, _ = await ask(to, ModelRequest(messages=messages))
        found: list[dict[str, Any]] = json.loads(again.content)
        return found[1:]

    reasoning, search, message, called, output = await sent()
    assert [reasoning, search] == reply.items[:2]
    assert reasoning["encrypted_content"] == "opaque"
    assert message["content"] == [
        {"type": "output_text", "text": "Moss is green.", "annotations": reply.items[2]["annotations"]}
    ]
    assert called == {**reply.items[3], "call_id": "c1", "name": "add", "arguments": '{"a":1,"b":2}'}
    assert output == {"type": "function_call_output", "call_id": "c1", "output": "3"}
    plain = [
        {"role": "assistant", "content": "Moss is green."},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1,"b":2}'},
        output,
    ]
    # Another model reads what was said, and none of what it could not read.
    assert await sent(msgspec.structs.replace(spec, name="other")) == plain
    # Without its reasoning a search is refused.
    del reply.items[0]["encrypted_content"]
    assert await sent() == plain


async def test_a_model_without_reasoning_is_asked_without_it(server: ModelServer) -> None:
    reply, _ = await ask(responses(server), saying("unreasoning"))
    assert reply.content == "false"
    assert len(server.journal()) == 2


@pytest.mark.parametrize("stream", [True, False])
async def test_answers_that_are_not_whole(server: ModelServer, stream: bool) -> None:
    spec = responses(server, stream=stream)
    reply, _ = await ask(spec, saying("length"))
    assert (reply.content, reply.finish_reason) == ("half an", "length")
    with pytest.raises(ModelRefused, match=r"content filter of .* withheld the answer"):
        await ask(spec, saying("filtered"))
    for text in ("fails", "error"):
        with pytest.raises(ModelUnavailable, match=r"answered 500: the response failed") as caught:
            await ask(spec, saying(text))
        assert caught.value.status == 500


async def test_a_refusal_names_the_key_to_change(server: ModelServer) -> None:
    with pytest.raises(ModelRefused, match=r"leave out model\.reasoning_effort"):
        await ask(responses(server, reasoning_effort="low"), saying("effort"))
    with pytest.raises(ModelRefused) as caught:
        await ask(responses(server), saying("long"))
    assert caught.value.too_long


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': 0, **fields})}\n\n"


@pytest.mark.parametrize(
    ("body", "complaint", "status"),
    [
        ("data: [DONE]\n\n", "holds no response", None),
        ("data: {half\n\n", "is malformed", None),
        (event("response.output_text.delta", delta=[None, 7]), "without a finish_reason", None),
        (event("response.output_text.delta", delta="half"), "without a finish_reason", None),
        (event("error", error={"message": "overloaded"}), "answered 500: overloaded", 500),
        (event("error", code="rate_limit_exceeded", message="slow"), "answered 429: slow", 429),
        (
            event("response.failed", response={"error": {"code": "rate_limit_exceeded", "message": "slow"}}),
            "answered 429: slow",
            429,
        ),
    ],
)
async def test_a_stream_that_is_no_answer(body: str, complaint: str, status: int | None) -> None:
    async with server_that_sends(body) as spec:
        with pytest.raises(ModelUnavailable, match=complaint) as caught:
            await ask(msgspec.structs.replace(spec, api="responses"), saying("plain"))
    assert caught.value.status == status


async def test_a_failure_that_no_second_try_would_mend() -> None:
    failed = event("response.failed", response={"error": {"code": "invalid_prompt", "message": "no"}})
    async with server_that_sends(failed) as spec:
        with pytest.raises(ModelRefused, match="answered 400: no"):
            await ask(msgspec.structs.replace(spec, api="responses"), saying("plain"))


async def test_an_answer_without_events_for_its_items() -> None:
    """Some servers send the whole answer with the last event only."""
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "All."}]}
    usage = {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}
    usage["output_tokens_details"] = {"reasoning_tokens": 1}
    done = event("response.completed", response={"status": "completed", "output": [message], "usage": usage})
    async with server_that_sends(done) as spec:
        reply, heard = await ask(msgspec.structs.replace(spec, api="responses"), saying("plain"))
    assert (reply.content, heard, reply.items) == ("All.", ["All."], [])
    assert (reply.cached_tokens, reply.reasoning_tokens) == (4, 1)
