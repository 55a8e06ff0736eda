"""Answers of chat completions while their model writes them: in pieces, past lost attempts, never as another answer."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk

from harness.patience import patience
from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
AGENTS = ["host"]


LINES = {"messageId": "lines", "role": "ROLE_USER", "parts": [{"text": "separate lines"}]}

STORY = 'Once there was a host, and he told the same "story" each time: Ünique ☕ and long.'


def content_of(stream: Iterable[ChatCompletionChunk]) -> Iterator[str]:
    return (text for chunk in stream if chunk.choices and (text := chunk.choices[0].delta.content))


def test_an_answer_is_told_while_the_model_writes_it(openai_client: OpenAI) -> None:
    pieces = list(content_of(ask_for("tell a story", openai_client)))
    assert len(pieces) > 3
    assert "".join(pieces) == STORY


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/chat/completions",
            {"model": "host", "messages": [{"role": "user", "content": "separate lines"}]},
        ),
        ("/v1/responses", {"model": "host", "input": "separate lines"}),
        (
            "/agui/host",
            {"threadId": "lines", "runId": "1", "messages": [{"role": "user", "content": "separate lines"}]},
        ),
        (
            "/a2a/host",
            {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": LINES}},
        ),
    ],
)
def test_no_event_holds_what_may_be_taken_for_the_end_of_a_line(
    gateway: Gateway, path: str, body: dict[str, Any]
) -> None:
    asked = {**body, "stream": True} if path.startswith("/v1") else body
    headers = {"A2A-Version": "1.0"}
    answer = httpx2.post(f"{gateway.service.url}{path}", json=asked, headers=headers, timeout=patience())
    assert answer.status_code == 200, answer.text
    assert "\\u2028b\\u2029c\\u0085d" in answer.text
    assert answer.text.splitlines() == answer.text.removesuffix("\n").split("\n")
    (run,) = gateway.request("GET", "/v1/runs", params={"agent": "host", "limit": "1"}).json()["runs"]
    native = gateway.request("GET", f"/v1/runs/{run['id']}/events").text
    assert native.splitlines() == native.removesuffix("\n").split("\n")


def test_an_answer_that_broke_off_goes_on_where_it_was(openai_client: OpenAI) -> None:
    """The first attempt is cut off in the middle, the second says the same."""
    pieces = list(content_of(ask_for("tell a broken story", openai_client)))
    assert len(pieces) > 1
    assert "".join(pieces) == STORY


def test_what_was_told_in_vain_is_an_error_and_no_part_of_an_answer(openai_client: OpenAI) -> None:
    """The second attempt says something else, and a chunk cannot be taken back."""
    stream = ask_for("tell another story", openai_client)
    run = stream.response.headers["X-Cadre-Run"]
    pieces: list[str] = []
    with stream, pytest.raises(openai.APIError) as failed:
        pieces.extend(content_of(stream))
    assert pieces
    assert STORY.startswith("".join(pieces))
    assert failed.value.code == "answer_changed"
    assert openai_client.responses.retrieve(f"resp_{run}").output_text == "It was all otherwise."


def test_an_answer_survives_the_agent_that_told_it(openai_client: OpenAI, gateway: Gateway, stack: Stack) -> None:
    pieces = content_of(ask_for("tell a long story", openai_client))
    told = next(pieces)
    stack.services["host"].kill()
    stack.services["host"].start()
    assert told + "".join(pieces) == STORY


def ask_for(task: str, client: OpenAI) -> openai.Stream[ChatCompletionChunk]:
    return client.chat.completions.create(model="host", messages=[{"role": "user", "content": task}], stream=True)
