"""Answers of chat completions while their model writes them: in pieces, past lost attempts, never as another answer."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk

from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
AGENTS = ["host"]


STORY = 'Once there was a host, and he told the same "story" each time: Ünique ☕ and long.'


def content_of(stream: Iterable[ChatCompletionChunk]) -> Iterator[str]:
    return (text for chunk in stream if chunk.choices and (text := chunk.choices[0].delta.content))


def test_an_answer_is_told_while_the_model_writes_it(openai_client: OpenAI) -> None:
    pieces = list(content_of(ask_for("tell a story", openai_client)))
    assert len(pieces) > 3
    assert "".join(pieces) == STORY


def test_an_answer_that_broke_off_goes_on_where_it_was(openai_client: OpenAI) -> None:
    """The first attempt is cut off in the middle, the second tells the same."""
    pieces = list(content_of(ask_for("tell a broken story", openai_client)))
    assert len(pieces) > 1
    assert "".join(pieces) == STORY


def test_what_was_told_in_vain_is_an_error_and_no_part_of_an_answer(openai_client: OpenAI) -> None:
    """The second attempt tells something else, and a chunk cannot be taken back."""
    stream = ask_for("tell another story", openai_client)
    run = stream.response.headers["X-Cadre-Run"]
    pieces: list[str] = []
    with stream, pytest.raises(openai.APIError) as failed:
        pieces.extend(content_of(stream))
    assert pieces
    assert STORY.startswith("".join(pieces))
    assert failed.value.code == "answer_changed"
    assert openai_client.responses.retrieve(f"resp_{run}").output_text == "It was all otherwise."


def test_an_answer_survives_the_agent_that_told_it(
    openai_client: OpenAI, gateway: Gateway, stack: Stack
) -> None:
    pieces = content_of(ask_for("tell a long story", openai_client))
    told = next(pieces)
    stack.services["host"].kill()
    stack.services["host"].start()
    assert told + "".join(pieces) == STORY


def ask_for(task: str, client: OpenAI) -> openai.Stream[ChatCompletionChunk]:
    return client.chat.completions.create(
        model="host", messages=[{"role": "user", "content": task}], stream=True
    )
