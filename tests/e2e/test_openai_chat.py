"""Agents as models of OpenAI's chat completions: driven by the stock client."""

import json
import signal
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.chat.chat_completion import Choice
from pydantic import BaseModel

from harness.patience import eventually, patience
from harness.people import done
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
)

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class Person(BaseModel):
    """What an answer is parsed into."""

    name: str
    age: int


def client(gateway: Gateway, **options: Any) -> OpenAI:
    return OpenAI(base_url=f"{gateway.service.url}/v1", api_key="any", timeout=patience(), **options)


@pytest.fixture
def openai_client(gateway: Gateway) -> OpenAI:
    return client(gateway)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    return tmp_path / "books"


def said(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def runs_of(gateway: Gateway, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gateway.request("GET", "/v1/runs", params=query).json()["runs"]
    return found


# --- what is there, and what it says


def test_the_agents_are_the_models(openai_client: OpenAI) -> None:
    assert [one.id for one in openai_client.models.list()] == ["chief", "clerk", "host"]
    assert openai_client.models.retrieve("host").owned_by == "cadre"
    with pytest.raises(openai.NotFoundError) as refused:
        openai_client.models.retrieve("nobody")
    assert refused.value.code == "model_not_found"


def test_a_whole_answer_tells_what_the_team_has_done(openai_client: OpenAI, books: Path) -> None:
    answer = openai_client.chat.completions.create(
        model="chief", messages=said(f"have clerk: refund {books} 50")
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    assert "refunded 50" in (choice.message.content or "")
    doings = getattr(choice.message, "reasoning_content")  # noqa: B009 - no field of OpenAI's own
    assert "asks clerk" in doings
    assert "calls refund" in doings
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 0
    assert done(books) == ["refund 50"]


def test_a_stream_tells_it_while_it_happens(openai_client: OpenAI, books: Path) -> None:
    stream = openai_client.chat.completions.create(
        model="chief",
        messages=said(f"have clerk: refund {books} 60"),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "calls refund" in "".join(getattr(delta, "reasoning_content", "") for delta in deltas)
    assert "refunded 60" in "".join(delta.content or "" for delta in deltas)
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [
        "stop"
    ]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens > 0


def test_the_answer_has_the_form_that_was_asked_for(openai_client: OpenAI) -> None:
    answer = openai_client.chat.completions.parse(
        model="host", messages=said("Ann as JSON"), response_format=Person
    )
    assert answer.choices[0].message.parsed == Person(name="Ann", age=41)


def test_pictures_come_with_the_message(openai_client: OpenAI) -> None:
    url = f"data:image/png;base64,{PIXEL}"
    answer = openai_client.chat.completions.create(
        model="host",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "a picture"},
                    {"type": "image_url", "image_url": {"url": url}},
                ],
            }
        ],
    )
    assert answer.choices[0].message.content == "1 image"


# --- one chat is one session


@pytest.mark.parametrize("by", ["X-OpenWebUI-Chat-Id", "thread_id"])
def test_a_header_or_the_metadata_name_the_session(gateway: Gateway, by: str) -> None:
    headers, metadata = ({by: "0d1c-chat"}, {}) if by.startswith("X-") else ({}, {by: "A thread, of mine"})
    chat = client(gateway, default_headers=headers).chat.completions
    chat.create(model="host", messages=said("my name is Lea"), metadata=metadata)
    answer = chat.create(model="host", messages=said("what is my name?"), metadata=metadata)
    assert answer.choices[0].message.content == "You are Lea."
    newest, before = runs_of(gateway, agent="host", limit="2")
    assert newest["session"] == before["session"] == headers.get(by, newest["session"])


def test_titles_and_tags_are_answered_without_a_run(openai_client: OpenAI, gateway: Gateway) -> None:
    before = runs_of(gateway, limit="1")
    task = (
        "### Task:\nGenerate a title.\n### Output:\nJSON format: {{ {key} }}\n### Chat History:\n<chat_history>\n"
        "USER: How do I grow tomatoes on a balcony?\nASSISTANT: With sun.\n</chat_history>"
    )
    title = openai_client.chat.completions.create(
        model="host", messages=said(task.format(key='"title": "your concise title here"'))
    )
    assert json.loads(title.choices[0].message.content or "") == {"title": "How do I grow tomatoes"}
    tags = openai_client.chat.completions.create(
        model="host", messages=said(task.format(key='"tags": ["tag1", "tag2"]')), stream=True
    )
    assert json.loads("".join(chunk.choices[0].delta.content or "" for chunk in tags)) == {"tags": []}
    assert runs_of(gateway, limit="1") == before


# --- a person's word


def test_a_word_in_the_chat_decides(openai_client: OpenAI, books: Path) -> None:
    chat = said(f"have clerk: refund {books} 500")
    asked = openai_client.chat.completions.create(model="chief", messages=chat).choices[0]
    assert asked.finish_reason == "stop"
    assert "refund" in (asked.message.content or "")
    assert "/#/approvals" in (asked.message.content or "")
    assert done(books) == []
    chat += [{"role": "assistant", "content": asked.message.content}, {"role": "user", "content": "approve"}]
    answer = openai_client.chat.completions.create(model="chief", messages=chat)
    assert "refunded 500" in (answer.choices[0].message.content or "")
    assert done(books) == ["refund 500"]


def test_a_no_says_why(gateway: Gateway, books: Path) -> None:
    chat = client(gateway, default_headers={"X-Cadre-Session": "refused"})
    chat.chat.completions.create(model="clerk", messages=said(f"refund {books} 700"))
    answer = chat.chat.completions.create(model="clerk", messages=said("reject, he was paid last week"))
    assert "he was paid last week" in (answer.choices[0].message.content or "")
    assert done(books) == []


def test_anything_else_is_told_to_the_run(gateway: Gateway, books: Path) -> None:
    chat = client(gateway, default_headers={"X-Cadre-Session": "steered"})
    chat.chat.completions.create(model="clerk", messages=said(f"refund {books} 800"))
    answer = chat.chat.completions.create(model="clerk", messages=said("Please leave it."))
    assert answer.choices[0].message.content == "Left alone."
    assert len(runs_of(gateway, session="steered")) == 1


def test_a_key_that_may_not_decide_does_not_decide_in_a_chat(
    stack: Stack, gateway: Gateway, books: Path
) -> None:
    admin = "0123456789abcdef" * 4
    locked = Gateway(stack.add("locked", "cadre_gateway", CADRE_AUTH="keys", CADRE_ADMIN_KEY=admin))
    headers = {"Authorization": f"Bearer {admin}"}
    keys = {}
    for role in ("operator", "viewer"):
        wanted = {"name": role, "roles": [role]}
        keys[role] = locked.request("POST", "/v1/keys", json=wanted, headers=headers).json()["token"]
    url = f"{locked.service.url}/v1"
    viewer, operator, administrator = (
        OpenAI(base_url=url, api_key=key, timeout=patience())
        for key in (keys["viewer"], keys["operator"], admin)
    )
    chat = said(f"have clerk: refund {books} 900")
    with pytest.raises(openai.PermissionDeniedError):
        viewer.chat.completions.create(model="chief", messages=chat)
    asked = operator.chat.completions.create(model="chief", messages=chat).choices[0]
    chat += [{"role": "assistant", "content": asked.message.content}, {"role": "user", "content": "approve"}]
    with pytest.raises(openai.PermissionDeniedError, match="`approver`"):
        operator.chat.completions.create(model="chief", messages=chat)
    assert done(books) == []
    with pytest.raises(openai.AuthenticationError):
        OpenAI(base_url=url, api_key="cadre_nobodys").models.list()
    answer = administrator.chat.completions.create(model="chief", messages=chat)
    assert "refunded 900" in (answer.choices[0].message.content or "")
    stack.services["locked"].terminate()


# --- functions of the caller


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_caller_answers_its_own_functions(openai_client: OpenAI, is_streamed: bool) -> None:
    chat = said(f"the weathers, please{'!' if is_streamed else ''}")
    if is_streamed:
        with openai_client.chat.completions.stream(model="host", messages=chat, tools=[WEATHER]) as stream:
            asked: Choice = stream.get_final_completion().choices[0]
    else:
        asked = openai_client.chat.completions.create(model="host", messages=chat, tools=[WEATHER]).choices[0]
    assert asked.finish_reason == "tool_calls"
    calls = asked.message.tool_calls or []
    assert [json.loads(call.function.arguments) for call in calls if call.type == "function"] == [
        {"city": "Oslo"},
        {"city": "Rome"},
    ]
    chat.append(asked.message.to_dict())  # type: ignore[arg-type]
    for call, degrees in zip(calls, (3, 21), strict=True):
        chat.append({"role": "tool", "tool_call_id": call.id, "content": f"{degrees} degrees"})
    answer = openai_client.chat.completions.create(model="host", messages=chat, tools=[WEATHER])
    assert answer.choices[0].message.content == "It is 3 degrees and 21 degrees."


# --- sent again, hung up, broken


def test_a_retry_of_the_stock_client_finds_the_run(gateway: Gateway) -> None:
    first = client(gateway).chat.completions.with_raw_response.create(model="host", messages=said("Once!"))
    retried = client(gateway).chat.completions.with_raw_response.create(
        model="host", messages=said("Once!"), extra_headers={"x-stainless-retry-count": "1"}
    )
    anew = client(gateway).chat.completions.with_raw_response.create(model="host", messages=said("Once!"))
    runs = [one.headers["X-Cadre-Run"] for one in (first, retried, anew)]
    assert runs[0] == runs[1] != runs[2]


def test_an_idempotency_key_is_one_run(openai_client: OpenAI) -> None:
    def ask() -> str:
        raw = openai_client.chat.completions.with_raw_response.create(
            model="host", messages=said("By key"), extra_headers={"Idempotency-Key": "k-1"}
        )
        return raw.headers["X-Cadre-Run"]

    assert ask() == ask()
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(
            model="host", messages=said("Another"), extra_headers={"Idempotency-Key": "k-1"}
        )
    assert refused.value.code == "idempotency_key_reused"


@pytest.mark.parametrize(("hangup", "ended"), [("continue", "waiting"), ("cancel", "cancelled")])
def test_who_hangs_up_leaves_the_run_unless_it_says_otherwise(
    gateway: Gateway, stack: Stack, hangup: str, ended: str
) -> None:
    """The run waits for a clerk that stands still, so that nothing of it can end by itself."""
    stack.services["clerk"].signal(signal.SIGSTOP)
    try:
        chat = client(gateway, default_headers={"X-Cadre-Hangup": hangup})
        with chat.chat.completions.create(
            model="chief", messages=said("have clerk: refund x 1"), stream=True
        ) as stream:
            while "asks clerk" not in getattr(next(stream).choices[0].delta, "reasoning_content", ""):
                pass
        (run,) = runs_of(gateway, agent="chief", limit="1")
        if hangup == "cancel":
            eventually(lambda: gateway.run(run["id"])["state"] == ended, what="it is cancelled")
        else:
            assert gateway.run(run["id"])["state"] in ("running", ended)
            gateway.request("POST", f"/v1/runs/{run['id']}/cancel")
    finally:
        stack.services["clerk"].signal(signal.SIGCONT)


def test_a_run_that_fails_is_an_error_that_is_not_tried_again(
    openai_client: OpenAI, gateway: Gateway
) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        openai_client.chat.completions.create(model="host", messages=said("break"))
    assert failed.value.code == "run_failed"
    assert "no such key" in str(failed.value)
    with pytest.raises(openai.APIError, match="no such key"):
        list(openai_client.chat.completions.create(model="host", messages=said("break!"), stream=True))


def test_unknown_fields_are_the_agents_own_business(openai_client: OpenAI) -> None:
    answer = openai_client.chat.completions.create(
        model="host",
        messages=said("Good day"),
        temperature=0.1,
        max_completion_tokens=5,
        reasoning_effort="low",
        extra_body={"shininess": 3},
    )
    assert answer.choices[0].message.content == "Hello!"
