"""The scripted model's Responses API, as the stock client reads it: whole, streamed, incomplete, failed."""

from collections.abc import AsyncIterator

import openai
import pytest

from cadre.testing import ModelServer

SCRIPT = """
rules:
  - name: searched
    match: {user: ^searched}
    reply:
      items:
        - {type: reasoning, id: rs_1, summary: [{type: summary_text, text: Look it up.}], encrypted_content: opaque}
        - {type: web_search_call, id: ws_1, status: completed, action: {type: search, query: moss}}
      content: "Moss is green, say {{ turn }} sources."
      annotations: [{type: url_citation, url: "https://example.com/moss", title: Moss, start_index: 0, end_index: 13}]
  - name: calls
    match: {user: ^calls, has_tool: false}
    reply: {content: One., tool_calls: [{name: add, arguments: {a: 1}}]}
  - {name: called, match: {user: ^calls}, reply: {content: "{{ results.add[0] }} in turn {{ turn }}"}}
  - {name: cut, match: {user: ^cut}, reply: {content: half an, finish: length}}
  - {name: fails, match: {user: ^fails}, reply: {content: half, finish: failed}}
  - {name: error, match: {user: ^error}, reply: {content: half, finish: error}}
  - {name: slow down, match: {user: ^limited}, reply: {error: {status: 429, message: slow down}}}
"""

TOOLS = [
    {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False},
    {"type": "web_search"},
]


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0) as one:
        yield one


async def test_whole_and_streamed_responses_are_the_same(client: openai.AsyncOpenAI) -> None:
    whole = await client.responses.create(model="any", input="searched")
    assert [item.type for item in whole.output] == ["reasoning", "web_search_call", "message"]
    assert (whole.output_text, whole.status) == ("Moss is green, say 0 sources.", "completed")
    assert whole.usage is not None
    assert whole.usage.output_tokens > 0
    async with client.responses.stream(model="any", input="searched") as stream:
        names = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == whole.output_text
    assert final.output[2].content[0].annotations[0].url == "https://example.com/moss"  # type: ignore[union-attr,index]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-2:] == ["response.output_item.done", "response.completed"]
    assert names.count("response.output_text.delta") == 3


async def test_calls_their_results_and_the_answer(client: openai.AsyncOpenAI, server: ModelServer) -> None:
    conversation: list[object] = [{"role": "user", "content": "calls"}]
    async with client.responses.stream(model="any", input=conversation, tools=TOOLS) as stream:  # type: ignore[arg-type]
        final = await stream.get_final_response()
    call = final.output[1]
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("add", '{"a": 1}')
    conversation += [item.to_dict() for item in final.output]
    with pytest.raises(openai.BadRequestError, match=call.call_id):
        await client.responses.create(model="any", input=conversation)  # type: ignore[arg-type]
    conversation.append({"type": "function_call_output", "call_id": call.call_id, "output": "two"})
    last = await client.responses.create(model="any", input=conversation, instructions="Be brief.")  # type: ignore[arg-type]
    assert last.output_text == "two in turn 1"
    assert [line["turn"] for line in server.journal()] == [0, 1]


async def test_a_schema_is_kept_to(client: openai.AsyncOpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"size": {"type": "integer", "minimum": 10}},
        "required": ["size"],
    }
    wanted = {"format": {"type": "json_schema", "name": "town", "schema": schema}}
    done = await client.responses.create(model="any", input="a town", text=wanted)  # type: ignore[call-overload]
    assert done.output_text == '{"size": 10}'


async def test_what_is_no_answer(client: openai.AsyncOpenAI) -> None:
    cut = await client.responses.create(model="any", input="cut")
    assert (cut.status, cut.output_text) == ("incomplete", "half an")
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
    ends = {}
    for text in ("cut", "fails", "error"):
        stream = await client.responses.create(model="any", input=text, stream=True)
        ends[text] = [event.type async for event in stream][-1]
    assert ends == {"cut": "response.incomplete", "fails": "response.failed", "error": "error"}
    with pytest.raises(openai.RateLimitError, match="slow down"):
        await client.responses.create(model="any", input="limited")
    with pytest.raises(openai.BadRequestError, match="input must be"):
        await client.responses.create(model="any", input=[])
