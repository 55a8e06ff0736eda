"""Responses of agents, by the Open Responses specification: driven by the stock client."""

import json
import re
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import FunctionToolParam, Response, ResponseInputParam, ResponseStreamEvent
from pydantic import BaseModel

from harness.patience import eventually, patience
from harness.people import decide, done
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}

REQUIRED = re.findall(
    r"\w+",
    """
    id object created_at completed_at status incomplete_details model previous_response_id instructions output error
    tools tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs
    temperature reasoning user usage max_output_tokens max_tool_calls store background service_tier metadata
    safety_identifier prompt_cache_key
    """,
)
"""The keys that the specification requires of a response."""


class Person(BaseModel):
    """The form of an answer."""

    name: str
    age: int


@pytest.fixture
def client(gateway: Gateway) -> OpenAI:
    return OpenAI(base_url=f"{gateway.service.url}/v1", api_key="any", timeout=patience())


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


def told(events: Iterable[ResponseStreamEvent]) -> list[dict[str, Any]]:
    return [event.model_dump(mode="json", warnings=False) for event in events]


def calls_in(response: Response) -> list[Any]:
    return [item for item in response.output if item.type == "function_call"]


def settled(client: OpenAI, response: Response) -> Response:
    """The response once it is over."""
    found = [response]

    def is_over() -> bool:
        found[0] = client.responses.retrieve(response.id)
        return found[0].status not in ("queued", "in_progress")

    eventually(is_over, what="the response is over", state=lambda: found)
    return found[0]


def test_a_stream_ends_as_streams_of_chats_do_and_names_the_conversation(gateway: Gateway) -> None:
    asked = {"model": "host", "input": "Hi", "stream": True, "conversation": {"id": "conv_7"}}
    text = gateway.request("POST", "/v1/responses", json=asked).text
    frames = text.strip().split("\n\n")
    assert frames[-1] == "data: [DONE]"
    last = json.loads(frames[-2].partition("data: ")[2])
    assert last["response"]["conversation"] == {"id": "conv_7"}


def test_a_file_may_be_named_by_its_address(client: OpenAI, gateway: Gateway) -> None:
    parts: Any = [
        {"type": "input_text", "text": "Hi"},
        {"type": "input_file", "file_url": "https://a.example/b.pdf"},
    ]
    answer = client.responses.create(model="host", input=[{"role": "user", "content": parts}])
    run = gateway.run(answer.id.removeprefix("resp_"), full="true")
    assert "https://a.example/b.pdf" in json.dumps(run["memory"])


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/models/nobody", "/v1/runs/nobody", "/v1/responses/resp_x"])
def test_errors_have_the_form_of_openai_at_every_path(gateway: Gateway, path: str) -> None:
    answer = gateway.request("GET", path)
    assert answer.status_code == 404
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


# --- whole and streamed


def test_a_response_has_all_that_the_specification_requires(client: OpenAI, books: Path) -> None:
    response = client.responses.create(
        model="chief",
        input=f"have clerk: refund {books} 50",
        instructions="Be brief.",
        metadata={"topic": "money"},
    )
    assert not set(REQUIRED) - response.to_dict().keys()
    assert response.status == "completed"
    assert "refunded 50" in response.output_text
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert "calls refund" in json.dumps(response.to_dict()["output"])
    assert (response.instructions, response.metadata) == ("Be brief.", {"topic": "money"})
    assert response.usage is not None
    assert response.usage.total_tokens > 0
    assert client.responses.retrieve(response.id) == response, "another reading tells the same"
    (item,) = client.responses.input_items.list(response.id)
    assert item.type == "message"


def test_the_events_of_a_stream_are_numbered_and_in_order(client: OpenAI, books: Path) -> None:
    with client.responses.stream(model="chief", input=f"have clerk: refund {books} 60") as stream:
        events = told(stream)
        final = stream.get_final_response()
    assert "refunded 60" in final.output_text
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    raw = told(client.responses.retrieve(final.id, stream=True))
    names = [event["type"] for event in raw if not event["type"].endswith(".delta")]
    assert names == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    again = told(client.responses.retrieve(final.id, stream=True, starting_after=raw[4]["sequence_number"]))
    assert again == raw[5:], "the same events have the same numbers"
    told_live = [event["type"] for event in events if not event["type"].endswith(".delta")]
    assert sorted(told_live) == sorted(names), "the message may be opened while the model writes it"


def test_an_answer_is_parsed(client: OpenAI) -> None:
    response = client.responses.parse(model="host", input="Ann as JSON", text_format=Person)
    assert response.output_parsed == Person(name="Ann", age=41)


def test_the_hidden_requests_of_chat_programs_cost_no_run(client: OpenAI, gateway: Gateway) -> None:
    asked = (
        '### Task:\nGenerate a title.\n### Output:\nJSON format: { "title": "…" }\n<chat_history>\n'
        "USER: Hello there, how are you today?\n</chat_history>"
    )
    before = gateway.request("GET", "/v1/runs", params={"limit": "500"}).json()
    title = '{"title": "Hello there, how are you"}'
    whole = client.responses.create(model="host", input=asked, store=False)
    assert (whole.output_text, whole.status) == (title, "completed")
    assert not set(REQUIRED) - whole.to_dict().keys()
    assert whole.usage
    assert whole.usage.total_tokens == 0
    with client.responses.stream(model="host", input=asked) as stream:
        assert stream.get_final_response().output_text == title
    assert gateway.request("GET", "/v1/runs", params={"limit": "500"}).json() == before
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(whole.id)


@pytest.mark.parametrize("fields", [{"prompt": {"id": "pmpt_1"}}, {"top_logprobs": 2}])
def test_what_would_change_the_answer_is_refused(client: OpenAI, fields: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="host", input="Hi", **fields)
    assert refused.value.param == next(iter(fields))


def test_an_answer_has_no_more_tokens_than_its_caller_takes(client: OpenAI) -> None:
    wanted: dict[str, Any] = {"model": "host", "input": "tell a story", "max_output_tokens": 5}
    whole = client.responses.create(**wanted)
    last = [*client.responses.create(**wanted, stream=True)][-1]
    assert last.type == "response.incomplete"
    for response in (whole, last.response, client.responses.retrieve(whole.id)):
        assert (response.status, response.output_text) == ("incomplete", "Once there was a hos")
        assert response.incomplete_details
        assert response.incomplete_details.reason == "max_output_tokens"
        assert (response.max_output_tokens, response.output[-1].to_dict()["status"]) == (5, "incomplete")
    enough = client.responses.create(model="host", input="tell a story", max_output_tokens=16_000)
    assert (enough.status, enough.output_text[-5:]) == ("completed", "long.")


def test_a_response_repeats_the_choice_of_tools(client: OpenAI) -> None:
    none = client.responses.create(model="host", input="Hi", tools=[WEATHER], tool_choice="none")
    assert none.tool_choice == "none"
    assert client.responses.create(model="host", input="Hi").tool_choice == "auto"


# --- conversations


def test_a_response_goes_on_from_the_previous_one(client: OpenAI) -> None:
    first = client.responses.create(model="host", input="my name is Noor")
    second = client.responses.create(model="host", input="what is my name?", previous_response_id=first.id)
    assert second.output_text == "You are Noor."
    assert second.previous_response_id == first.id
    branch = client.responses.create(model="host", input="what is my name??", previous_response_id=first.id)
    assert branch.output_text == "You are Noor."


def test_the_caller_answers_its_own_functions(client: OpenAI) -> None:
    asked = client.responses.create(model="host", input="the weathers", tools=[WEATHER])
    calls = calls_in(asked)
    assert asked.status == "completed"
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Oslo", "Rome"]
    with pytest.raises(openai.BadRequestError, match=calls[1].call_id):
        client.responses.create(
            model="host",
            previous_response_id=asked.id,
            input=[{"type": "function_call_output", "call_id": calls[0].call_id, "output": "3 degrees"}],
        )
    results: ResponseInputParam = [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"{degrees} degrees"}
        for call, degrees in zip(calls, (3, 21), strict=True)
    ]
    answer = client.responses.create(model="host", previous_response_id=asked.id, input=results)
    assert answer.output_text == "It is 3 degrees and 21 degrees."
    assert answer.previous_response_id == asked.id
    assert client.responses.retrieve(asked.id) == asked, "what was asked stays"
    assert [item.type for item in client.responses.input_items.list(answer.id)] == ["function_call_output"] * 2
    again = client.responses.create(model="host", previous_response_id=asked.id, input=results)
    assert again.id == answer.id, "sent again, it is the same"


def test_a_caller_that_keeps_the_conversation_itself(client: OpenAI) -> None:
    chat: ResponseInputParam = [{"role": "user", "content": "the weather in Bonn"}]
    asked = client.responses.create(model="host", input=chat, tools=[WEATHER], store=False)
    (call,) = calls_in(asked)
    chat += [item.to_dict() for item in asked.output]  # type: ignore[misc]
    chat.append({"type": "function_call_output", "call_id": call.call_id, "output": "9 degrees"})
    answer = client.responses.create(model="host", input=chat, tools=[WEATHER], store=False)
    assert answer.output_text == "It is 9 degrees."


@pytest.mark.parametrize(("approve", "said"), [(True, "refunded 500"), (False, "not today")])
def test_approvals_are_items(client: OpenAI, books: Path, approve: bool, said: str) -> None:
    asked = client.responses.create(model="chief", input=f"have clerk: refund {books} 500")
    (request,) = [item for item in asked.output if item.type == "mcp_approval_request"]
    assert json.loads(request.arguments)["amount"] == 500
    assert done(books) == []
    answer = client.responses.create(
        model="chief",
        previous_response_id=asked.id,
        input=[
            {
                "type": "mcp_approval_response",
                "approval_request_id": request.id,
                "approve": approve,
                "reason": "not today",
            }
        ],
    )
    assert said in answer.output_text
    assert done(books) == (["refund 500"] if approve else [])


# --- in the background


def test_a_response_in_the_background_is_fetched_later(client: OpenAI, books: Path) -> None:
    begun = client.responses.create(model="chief", input=f"have clerk: refund {books} 70", background=True)
    assert begun.status in ("queued", "in_progress", "completed")
    assert begun.background is True
    response = settled(client, begun)
    assert response.status == "completed"
    assert "refunded 70" in response.output_text


def test_a_response_is_cancelled_and_deleted(client: OpenAI, gateway: Gateway, stack: Stack) -> None:
    """The run waits for a clerk that stands still."""
    stack.services["clerk"].signal(signal.SIGSTOP)
    try:
        begun = client.responses.create(model="chief", input="have clerk: refund x 1", background=True)
        client.responses.cancel(begun.id)
        assert settled(client, begun).status == "cancelled"
    finally:
        stack.services["clerk"].signal(signal.SIGCONT)
    run = begun.id.removeprefix("resp_")
    eventually(
        lambda: all(child["state"] == "cancelled" for child in gateway.run(run)["children"]),
        what="all below it has ended",
    )
    client.responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun.id)


def test_a_part_that_was_never_told_is_no_response(client: OpenAI, gateway: Gateway, books: Path) -> None:
    asked = client.responses.create(model="clerk", input=f"refund {books} 960")
    (request,) = [item for item in asked.output if item.type == "mcp_approval_request"]
    said: ResponseInputParam = [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]
    answer = client.responses.create(model="clerk", previous_response_id=asked.id, input=said)
    assert client.responses.retrieve(answer.id) == answer
    made_up = [f"{asked.id}_{10**9}", f"{answer.id}0"]
    for one in made_up:
        for use in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
            with pytest.raises(openai.NotFoundError):
                use(one)
        with pytest.raises(openai.NotFoundError):
            client.responses.input_items.list(one)
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="clerk", input="And now?", previous_response_id=one)
    assert client.responses.retrieve(asked.id) == asked, "its run was not erased"


def test_the_result_of_a_function_allows_no_call(client: OpenAI, gateway: Gateway, books: Path) -> None:
    asked = client.responses.create(model="clerk", input=f"refund {books} 970")
    (request,) = [item for item in asked.output if item.type == "mcp_approval_request"]
    with pytest.raises(openai.BadRequestError, match="mcp_approval_response"):
        client.responses.create(
            model="clerk",
            previous_response_id=asked.id,
            input=[{"type": "function_call_output", "call_id": request.id, "output": "denied"}],
        )
    assert gateway.run(asked.id.removeprefix("resp_"))["state"] == "waiting"


@pytest.mark.parametrize("order", ["word first", "result first", "at once"])
def test_a_person_and_the_caller_are_asked_in_one_response(client: OpenAI, books: Path, order: str) -> None:
    asked = client.responses.create(model="clerk", input=f"refund {books} and weather", tools=[WEATHER])
    (request,) = [item for item in asked.output if item.type == "mcp_approval_request"]
    (call,) = calls_in(asked)
    word: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "3 degrees"}
    turns = {
        "word first": [[word], [result]],
        "result first": [[result], [word]],
        "at once": [[word, result]],
    }
    previous, found = asked, [asked]
    for turn in turns[order]:
        answer = client.responses.create(model="clerk", previous_response_id=previous.id, input=turn)
        again = client.responses.create(model="clerk", previous_response_id=previous.id, input=turn)
        assert (again.id, answer.previous_response_id) == (answer.id, previous.id)
        previous = answer
        found.append(answer)
    assert found[-1].output_text == "refunded 900, 3 degrees"
    assert done(books) == ["refund 900"]
    if order != "at once":
        (left,) = [item for item in found[1].output if item.type != "reasoning"]
        assert left.type == ("function_call" if order == "word first" else "mcp_approval_request")
    assert [client.responses.retrieve(one.id) for one in found] == found, "each stays what it was"


@pytest.mark.parametrize("by", ["history", "previous response"])
def test_a_handoff_is_answered_by_the_agent_that_is_named(client: OpenAI, gateway: Gateway, by: str) -> None:
    transfer: FunctionToolParam = {
        "type": "function",
        "name": "transfer_to_clerk",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    chat: ResponseInputParam = [{"role": "user", "content": "hand over, please"}]
    asked = client.responses.create(model="host", input=chat, tools=[transfer])
    (call,) = calls_in(asked)
    given: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "handed over by host"}
    if by == "history":
        chat += [item.to_dict() for item in asked.output]  # type: ignore[misc]
        chat.append(given)
        answer = client.responses.create(model="clerk", input=chat)
    else:
        answer = client.responses.create(model="clerk", input=[given], previous_response_id=asked.id)
    assert answer.model == "clerk"
    run = gateway.run(answer.id.removeprefix("resp_"), full="true")
    assert run["agent"] == "clerk"
    for piece in ("hand over, please", call.call_id, "handed over by host"):
        assert piece in json.dumps(run["memory"]), piece
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.responses.create(model="nobody", input=[given], previous_response_id=asked.id)


def test_a_killed_gateway_loses_no_event_and_begins_nothing_twice(
    client: OpenAI, gateway: Gateway, stack: Stack, books: Path
) -> None:
    """The run is held for a person while the gateway dies, so it is under way for certain."""
    stack.services["clerk"].signal(signal.SIGSTOP)
    stream = client.responses.create(
        model="chief", input=f"have clerk: refund {books} 80", stream=True, background=True
    )
    seen: list[dict[str, Any]] = []
    with stream:
        for event in stream:
            seen.append(event.to_dict())
            if "asks clerk" in getattr(event, "delta", ""):
                break
        gateway.service.kill()
    stack.services["clerk"].signal(signal.SIGCONT)
    gateway.service.start()
    response = seen[0]["response"]["id"]
    rest = told(client.responses.retrieve(response, stream=True, starting_after=seen[-1]["sequence_number"]))
    whole = told(client.responses.retrieve(response, stream=True))
    assert [event["sequence_number"] for event in seen + rest] == [event["sequence_number"] for event in whole]
    assert rest[-1]["type"] == "response.completed"
    assert done(books) == ["refund 80"]


def test_a_decision_elsewhere_counts(client: OpenAI, gateway: Gateway, books: Path) -> None:
    asked = client.responses.create(model="clerk", input=f"refund {books} 900")
    (request,) = [item for item in asked.output if item.type == "mcp_approval_request"]
    assert decide(gateway, request.id, "approved").status_code == 200
    answer = client.responses.create(
        model="clerk",
        previous_response_id=asked.id,
        input=[{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}],
    )
    assert "refunded 900" in answer.output_text
    assert done(books) == ["refund 900"]


# --- errors


def test_a_word_on_what_was_decided_elsewhere_finds_the_answer(client: OpenAI, gateway: Gateway, books: Path) -> None:
    first: ChatCompletionMessageParam = {"role": "user", "content": f"have clerk: refund {books} 550"}
    chat = [first]
    asked = client.chat.completions.with_raw_response.create(model="chief", messages=chat)
    run, question = asked.headers["X-Cadre-Run"], asked.parse().choices[0].message.content
    (held,) = gateway.request("GET", f"/v1/approvals?run={run}").json()["approvals"]
    gateway.request("POST", f"/v1/approvals/{held['call']}", json={"verdict": "approved"})
    gateway.finished(run)
    chat += [{"role": "assistant", "content": question}, {"role": "user", "content": "approve"}]
    answer = client.chat.completions.with_raw_response.create(model="chief", messages=chat)
    assert answer.headers["X-Cadre-Run"] == run
    assert "refunded 550" in (answer.parse().choices[0].message.content or "")
    assert done(books) == ["refund 550"]


def test_a_run_that_fails_is_a_failed_response(client: OpenAI) -> None:
    response = client.responses.create(model="host", input="break")
    assert response.status == "failed"
    assert response.error is not None
    assert "no such key" in response.error.message
    last = list(client.responses.create(model="host", input="break!", stream=True))[-1]
    assert last.type == "response.failed"


def test_unknown_responses_are_not_found(client: OpenAI) -> None:
    for unknown in ("resp_0", "nonsense"):
        with pytest.raises(openai.NotFoundError) as refused:
            client.responses.retrieve(unknown)
        assert refused.value.code == "response_not_found"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="host", input="Hi", previous_response_id="resp_0")
