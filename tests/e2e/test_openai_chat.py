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

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"

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
    """The form of an answer."""

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
    answer = openai_client.chat.completions.create(model="chief", messages=said(f"have clerk: refund {books} 50"))
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
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens > 0


def test_the_answer_has_the_form_that_was_asked_for(openai_client: OpenAI) -> None:
    answer = openai_client.chat.completions.parse(model="host", messages=said("Ann as JSON"), response_format=Person)
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
    assert title.usage
    assert title.usage.total_tokens == 0
    counted = openai_client.chat.completions.create(
        model="host",
        messages=said(task.format(key='"queries": []')),
        stream=True,
        stream_options={"include_usage": True},
    )
    assert [chunk.usage.total_tokens for chunk in counted if chunk.usage] == [0]
    assert runs_of(gateway, limit="1") == before


# --- a person's word


def test_a_word_in_the_chat_decides(openai_client: OpenAI, books: Path) -> None:
    chat = said(f"have clerk: refund {books} 500")
    asked = openai_client.chat.completions.create(model="chief", messages=chat).choices[0]
    assert asked.finish_reason == "stop"
    assert "Refund 500 €: refund {" in (asked.message.content or "")
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


def test_a_key_that_may_not_decide_does_not_decide_in_a_chat(stack: Stack, gateway: Gateway, books: Path) -> None:
    admin = "0123456789abcdef" * 4
    locked = Gateway(stack.add("locked", "cadre_gateway", CADRE_AUTH="keys", CADRE_ADMIN_KEY=admin))
    headers = {"Authorization": f"Bearer {admin}"}
    keys = {}
    for role in ("operator", "viewer"):
        wanted = {"name": role, "roles": [role]}
        keys[role] = locked.request("POST", "/v1/keys", json=wanted, headers=headers).json()["token"]
    url = f"{locked.service.url}/v1"
    viewer, operator, administrator = (
        OpenAI(base_url=url, api_key=key, timeout=patience()) for key in (keys["viewer"], keys["operator"], admin)
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


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": True},
        {"modalities": ["text", "audio"]},
        {"functions": [{"name": "f"}]},
        {"audio": {"voice": "a"}},
        {"top_logprobs": 3},
        {"web_search_options": {}},
        {"max_tokens": 0},
    ],
)
def test_what_would_change_the_answer_is_refused(openai_client: OpenAI, fields: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model="host", messages=said("Hi"), **fields)
    assert refused.value.param == next(iter(fields))


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_ends_before_a_stop_sequence(openai_client: OpenAI, is_streamed: bool) -> None:
    wanted: dict[str, Any] = {"model": "host", "messages": said("tell a story"), "stop": ["each", "the same"]}
    if is_streamed:
        with openai_client.chat.completions.stream(**wanted) as stream:
            found = stream.get_final_completion()
    else:
        found = openai_client.chat.completions.create(**wanted)
    assert found.choices[0].message.content == "Once there was a host, and he told "


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_an_answer_has_no_more_tokens_than_its_caller_takes(
    openai_client: OpenAI, field: str, is_streamed: bool
) -> None:
    wanted: dict[str, Any] = {"model": "host", "messages": said("tell a story"), field: 5}
    if is_streamed:
        chunks = [*openai_client.chat.completions.create(**wanted, stream=True)]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        choice = openai_client.chat.completions.create(**wanted).choices[0]
        text, reason = choice.message.content or "", choice.finish_reason
    assert (text, reason) == ("Once there was a hos", "length")
    if not is_streamed:
        choice = openai_client.chat.completions.create(**{**wanted, field: 500}).choices[0]
        assert ((choice.message.content or "")[-5:], choice.finish_reason) == ("long.", "stop")


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


FORM: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "Person", "parameters": Person.model_json_schema()},
}


@pytest.mark.parametrize("task", ["extract Ann", "extract stubbornly"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "Person"}}])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_that_was_asked_for_ends_the_run(
    openai_client: OpenAI, gateway: Gateway, task: str, choice: Any, is_streamed: bool
) -> None:
    wanted: dict[str, Any] = {"model": "host", "messages": said(task), "tools": [FORM], "tool_choice": choice}
    if is_streamed:
        with openai_client.chat.completions.stream(**wanted) as stream:
            found = stream.get_final_completion()
    else:
        found = openai_client.chat.completions.create(**wanted)
    (call,) = found.choices[0].message.tool_calls or []
    assert json.loads(call.function.arguments) == {"name": "Ann", "age": 41}
    assert found.choices[0].finish_reason == "tool_calls"
    run = gateway.run(found.id.removeprefix("chatcmpl-"))
    assert run["state"] == "success"
    chat: list[Any] = [*said(task), found.choices[0].message.to_dict()]
    chat += [{"role": "tool", "tool_call_id": call.id, "content": "noted"}, *said("Good day")]
    later = openai_client.chat.completions.create(model="host", messages=chat)
    assert later.id.removeprefix("chatcmpl-") != run["id"], "that one has ended"


def test_a_function_of_the_caller_is_no_approval(openai_client: OpenAI, gateway: Gateway) -> None:
    found = openai_client.chat.completions.create(model="host", messages=said("extract Ann"), tools=[FORM])
    (call,) = found.choices[0].message.tool_calls or []
    run = gateway.run(found.id.removeprefix("chatcmpl-"))
    assert (run["state"], run["waiting_for"], run["approvals"]) == ("waiting", "caller", 0)
    listed = gateway.request("GET", "/v1/approvals").json()["approvals"]
    assert call.id not in [one["call"] for one in listed]
    asked = gateway.request("GET", f"/v1/approvals/{call.id}").json()
    assert asked["kind"] == "function"
    assert asked["expires_at"] - asked["requested_at"] == pytest.approx(86_400)


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        ("required", []),
        ("sometimes", [FORM]),
        ({"type": "function", "function": {"name": "nobody"}}, [FORM]),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(openai_client: OpenAI, choice: Any, tools: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(
            model="host", messages=said("extract Ann"), tools=tools, tool_choice=choice
        )
    assert refused.value.param == "tool_choice"


TRANSFER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "transfer_to_clerk", "parameters": {"type": "object", "properties": {}}},
}
TRANSFERRED = "handed over by host"


def transferring(call: str) -> list[Any]:
    function = {"name": "transfer_to_clerk", "arguments": "{}"}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call, "content": TRANSFERRED},
    ]


@pytest.mark.parametrize("has_user", [True, False])
def test_a_handoff_is_answered_by_the_agent_that_is_named(
    openai_client: OpenAI, gateway: Gateway, has_user: bool
) -> None:
    chat: list[Any] = said("hand over, please")
    asked = openai_client.chat.completions.create(model="host", messages=chat, tools=[TRANSFER])
    (call,) = asked.choices[0].message.tool_calls or []
    chat = [*(chat if has_user else []), *transferring(call.id)]
    answer = openai_client.chat.completions.with_raw_response.create(model="clerk", messages=chat)
    assert gateway.run(answer.headers["X-Cadre-Run"])["agent"] == "clerk"
    told = answer.parse().choices[0].message.content
    assert told == (f"The clerk has read: {TRANSFERRED}." if has_user else told)
    with pytest.raises(openai.NotFoundError, match="nobody"):
        openai_client.chat.completions.create(model="nobody", messages=chat)


@pytest.mark.parametrize("call", ["call_1", f"{'0' * 32}_1_0"])
@pytest.mark.parametrize("has_user", [True, False])
def test_a_call_that_another_model_has_made_is_part_of_the_conversation(
    openai_client: OpenAI, gateway: Gateway, call: str, has_user: bool
) -> None:
    chat = [*(said("hand over, please") if has_user else []), *transferring(call)]
    answer = openai_client.chat.completions.with_raw_response.create(model="clerk", messages=chat)
    (newest,) = runs_of(gateway, agent="clerk", limit="1")
    assert answer.headers["X-Cadre-Run"] == newest["id"]
    assert TRANSFERRED in json.dumps(gateway.run(newest["id"], full="true")["memory"])


@pytest.mark.parametrize("order", ["word first", "result first", "at once"])
def test_a_person_and_the_caller_are_asked_in_one_answer(openai_client: OpenAI, books: Path, order: str) -> None:
    chat: list[Any] = said(f"refund {books} and weather")

    def turn(*more: Any) -> Choice:
        chat.extend(more)
        found = openai_client.chat.completions.create(model="clerk", messages=chat, tools=[WEATHER]).choices[0]
        chat.append(found.message.to_dict())
        return found

    asked = turn()
    (call,) = asked.message.tool_calls or []
    assert "refund" in (asked.message.content or "")
    assert asked.finish_reason == "tool_calls"
    word, result = *said("approve"), {"role": "tool", "tool_call_id": call.id, "content": "3 degrees"}
    if order == "word first":
        again = turn(word)
        assert [one.id for one in again.message.tool_calls or []] == [call.id]
        answer = turn(result)
    elif order == "result first":
        question = turn(result)
        assert question.finish_reason == "stop"
        assert "refund" in (question.message.content or "")
        answer = turn(word)
    else:
        answer = turn(result, word)
    assert answer.message.content == "refunded 900, 3 degrees"
    assert done(books) == ["refund 900"]


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
    """The run waits for a clerk that stands still, so that nothing of it can end on its own."""
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


def test_a_run_that_fails_is_an_error_that_is_not_tried_again(openai_client: OpenAI, gateway: Gateway) -> None:
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
