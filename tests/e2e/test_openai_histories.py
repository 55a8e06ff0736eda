"""A chat's history is the conversation: what is sent is what the agent is given, and nothing of anybody else's."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam

from harness.patience import patience
from harness.stack import Gateway

TEAM = Path(__file__).parent / "doors"
AGENTS = ["host"]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"


def client(gateway: Gateway, **options: Any) -> OpenAI:
    return OpenAI(base_url=f"{gateway.service.url}/v1", api_key="any", timeout=patience(), **options)


def said(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def runs_of(gateway: Gateway, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.request("GET", "/v1/runs", params=query).json()["runs"]
    return found


def answered(answer: ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


def told_to(gateway: Gateway, agent: str) -> list[dict[str, Any]]:
    """Return what the agent's newest run was given: the steps of its memory."""
    (newest,) = runs_of(gateway, agent=agent, limit="1")
    steps: list[dict[str, Any]] = gateway.run(newest["id"], full="true")["memory"]
    return steps


def turn(
    client: OpenAI, chat: list[ChatCompletionMessageParam], text: str, **options: Any
) -> list[ChatCompletionMessageParam]:
    """The chat with this message and its answer."""
    asked = [*chat, *said(text)]
    answer = client.chat.completions.create(model="host", messages=asked, **options)
    return [*asked, {"role": "assistant", "content": answered(answer)}]


def test_a_chat_that_sends_its_history_is_given_that(openai_client: OpenAI, gateway: Gateway) -> None:
    chat = turn(openai_client, [], "Hello, my name is Ravi")
    assert turn(openai_client, chat, "what is my name?")[-1]["content"] == "You are Ravi."
    steps = told_to(gateway, "host")
    assert [step["type"] for step in steps if step["type"] == "task"] == ["task"], "it goes on from no run"
    assert "my name is Ravi" in json.dumps(steps)


def test_two_chats_of_the_same_words_know_nothing_of_each_other(openai_client: OpenAI, gateway: Gateway) -> None:
    """Both end alike; one begins with a secret."""
    one, other = (turn(openai_client, [], text) for text in ("The code is 7391.", "Good day"))
    one, other = (turn(openai_client, chat, "Good day") for chat in (one, other))
    again = turn(openai_client, other, "Good day")
    assert "7391" not in json.dumps(told_to(gateway, "host"))
    turn(openai_client, one, "Good day")
    assert "7391" in json.dumps(told_to(gateway, "host"))
    turn(openai_client, again, "Good day")
    assert "7391" not in json.dumps(told_to(gateway, "host"))


def test_a_chat_without_a_name_has_no_session(openai_client: OpenAI, gateway: Gateway) -> None:
    """Callers who begin with the same words do not share what agents keep for a session."""
    for _ in range(2):
        turn(openai_client, [], "Good day to all")
    newest, before = runs_of(gateway, agent="host", limit="2")
    assert (newest["task"], newest["session"], before["session"]) == ("Good day to all", None, None)


def test_nothing_of_a_history_is_left_out(openai_client: OpenAI, gateway: Gateway) -> None:
    """Calls of another program's model, their results, names, pictures, and a message behind the task."""
    function = {"name": "look_up", "arguments": '{"what": "tides"}'}
    chat: list[Any] = [
        {"role": "system", "content": "Speak plainly."},
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "A picture of the sea"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_abc", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_abc", "content": "High at noon."},
        {"role": "assistant", "content": "High at noon, then."},
        *said("what picture was that"),
        {"role": "system", "content": "Be brief."},
    ]
    answer = openai_client.chat.completions.create(model="host", messages=chat)
    assert answered(answer) == "1 image"
    (newest,) = runs_of(gateway, agent="host", limit="1")
    told = gateway.run(newest["id"], full="true")["memory"]
    for piece in ("Speak plainly.", "Be brief.", "ann", "tides", "call_abc", "High at noon.", "then."):
        assert piece in json.dumps(told), piece


def test_a_function_that_another_program_has_called_is_history(openai_client: OpenAI) -> None:
    chat: list[Any] = [
        *said("Good day"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "transfer", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    ]
    assert answered(openai_client.chat.completions.create(model="host", messages=chat)) == "Hello!"


def test_a_chat_that_was_taken_back_is_what_its_caller_sends(gateway: Gateway) -> None:
    """A user of a chat program edits a message, or asks for another answer, within the chat's session."""
    chat = client(gateway, default_headers={"X-OpenWebUI-Chat-Id": "taken-back"})
    first = turn(chat, [], "my name is Ina")
    second = turn(chat, first, "Good day")
    assert len([one for one in told_to(gateway, "host") if one["type"] == "task"]) == 2, "it goes on"
    turn(chat, first, "Good evening")  # in place of "Good day"
    steps = told_to(gateway, "host")
    assert "Good day" not in json.dumps(steps)
    assert "my name is Ina" in json.dumps(steps)
    edited = [{**first[0], "content": "my name is Una"}, *second[1:]]
    assert turn(chat, edited, "what is my name?")[-1]["content"] == "You are Una."  # type: ignore[arg-type]
    assert "Ina" not in json.dumps(told_to(gateway, "host"))
    assert {run["session"] for run in runs_of(gateway, session="taken-back")} == {"taken-back"}


@pytest.mark.parametrize("named", ["previous_response_id", "conversation"])
def test_what_comes_beside_a_named_conversation_is_added_to_it(
    openai_client: OpenAI, gateway: Gateway, named: str
) -> None:
    conversation = {"conversation": "conv_added"} if named == "conversation" else {}
    first = openai_client.responses.create(model="host", input="my name is Olu", extra_body=conversation)
    goes_on = conversation or {"previous_response_id": first.id}
    more: ResponseInputParam = [
        {"role": "user", "content": "The sea is green."},
        {"role": "user", "content": "what is my name?"},
    ]
    answer = openai_client.responses.create(model="host", input=more, extra_body=goes_on)
    assert answer.output_text == "You are Olu."
    assert "The sea is green." in json.dumps(told_to(gateway, "host"))


def test_a_response_with_the_whole_conversation_is_given_that(openai_client: OpenAI, gateway: Gateway) -> None:
    """Send a history as a program does that keeps the conversation, with calls to the program's functions in it."""
    items: ResponseInputParam = [
        {"role": "user", "content": "my name is Ada"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Thought hard."}]},
        {"type": "function_call", "call_id": "call_7", "name": "look_up", "arguments": '{"what": "tides"}'},
        {"type": "function_call_output", "call_id": "call_7", "output": "High at noon."},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "what is my name?"},
    ]
    assert openai_client.responses.create(model="host", input=items).output_text == "You are Ada."
    steps = told_to(gateway, "host")
    assert len([step for step in steps if step["type"] == "task"]) == 1
    for piece in ("Thought hard.", "tides", "call_7", "High at noon.", "Noted."):
        assert piece in json.dumps(steps), piece
