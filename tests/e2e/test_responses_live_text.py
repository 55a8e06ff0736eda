"""Answers of responses while their model writes them: numbered for readers who come back, never sent twice, never as
another answer."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam

from harness.stack import Gateway, Stack

TEAM = Path(__file__).parent / "doors"
AGENTS = ["host"]
STORY = 'Once there was a host, and he told the same "story" each time: Ünique ☕ and long.'
Json = dict[str, Any]

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


def dicts(events: Iterable[Any]) -> list[Json]:
    return [event.model_dump(mode="json", warnings=False) for event in events]


def follow(events: Iterable[Any], seen: list[Json], on_text: Callable[[], None] = lambda: None) -> None:
    """Takes the events in; `on_text` follows the first piece of the answer."""
    for event in events:
        is_first = event.type == "response.output_text.delta" and not text_of(seen)
        seen.append(event.model_dump(mode="json", warnings=False))
        if is_first:
            on_text()


def number_of(event: Json) -> int:
    found: int = event["sequence_number"]
    return found


def text_of(events: list[Json]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def steps_of(events: list[Json]) -> list[str]:
    """Return what is sent in addition to the pieces of texts."""
    return [event["type"] for event in events if not event["type"].endswith(".delta")]


def place_of(event_type: str, events: list[Json]) -> int:
    return next(index for index, event in enumerate(events) if event["type"] == event_type)


def check_whole(events: list[Json]) -> None:
    """Raises AssertionError unless the events tell the story, in order, and nothing twice."""
    numbers = [number_of(event) for event in events]
    assert numbers == sorted(set(numbers))
    assert text_of(events) == STORY
    assert all(event.get("delta", "more") for event in events)
    assert sorted(steps_of(events)) == sorted(
        [
            "response.created",
            "response.in_progress",
            *["response.output_item.added", "response.output_item.done"] * 2,
            *[f"response.reasoning_summary_{what}" for what in ("part.added", "text.done", "part.done")],
            *["response.content_part.added", "response.output_text.done", "response.content_part.done"],
            "response.completed",
        ]
    )
    assert events[place_of("response.output_text.done", events)]["text"] == STORY


def test_an_answer_is_told_while_the_model_writes_it(openai_client: OpenAI) -> None:
    with openai_client.responses.stream(model="host", input="tell a story") as stream:
        events = dicts(stream)
        final = stream.get_final_response()
    assert final.output_text == STORY
    check_whole(events)
    begun = place_of("response.output_text.delta", events)
    ended = place_of("response.reasoning_summary_text.done", events)
    live = [event for event in events[begun:ended] if event["type"] == "response.output_text.delta"]
    assert len(live) > 3
    kept = openai_client.responses.retrieve(final.id)
    assert [item["id"] for item in kept.to_dict()["output"]] == [  # type: ignore[attr-defined]
        event["item"]["id"] for event in events if event["type"] == "response.output_item.added"
    ]
    for cut in range(len(events)):
        rest = dicts(openai_client.responses.retrieve(final.id, stream=True, starting_after=number_of(events[cut])))
        check_whole(events[: cut + 1] + rest)
    check_whole(dicts(openai_client.responses.retrieve(final.id, stream=True)))
    with openai_client.responses.stream(response_id=final.id, starting_after=number_of(events[begun])) as again:
        assert again.get_final_response().output_text == STORY


def test_a_reader_that_is_cut_off_finds_the_rest_at_another_gateway(
    openai_client: OpenAI, gateway: Gateway, stack: Stack
) -> None:
    seen: list[Json] = []
    stream = openai_client.responses.create(model="host", input="tell a slow story", stream=True)
    with pytest.raises(openai.APIConnectionError):
        follow(stream, seen, gateway.service.kill)
    gateway.service.start()
    assert text_of(seen)
    rest = dicts(
        openai_client.responses.retrieve(seen[0]["response"]["id"], stream=True, starting_after=number_of(seen[-1]))
    )
    check_whole(seen + rest)


def test_an_answer_that_broke_off_goes_on_where_it_was(openai_client: OpenAI) -> None:
    """The first attempt is cut off in the middle, the second says the same."""
    with openai_client.responses.stream(model="host", input="tell a broken story") as stream:
        check_whole(dicts(stream))
        assert stream.get_final_response().output_text == STORY


def test_an_answer_survives_the_agent_that_told_it(openai_client: OpenAI, stack: Stack) -> None:
    def restart() -> None:
        stack.services["host"].kill()
        stack.services["host"].start()

    seen: list[Json] = []
    with openai_client.responses.stream(model="host", input="tell a long story") as stream:
        follow(stream, seen, restart)
    check_whole(seen)


def test_what_was_told_in_vain_is_an_error_and_no_part_of_an_answer(openai_client: OpenAI) -> None:
    """The second attempt says something else, and a piece of text cannot be taken back."""
    seen: list[Json] = []
    stream = openai_client.responses.create(model="host", input="tell another story", stream=True)
    with pytest.raises(openai.APIError) as failed:
        follow(stream, seen)
    assert failed.value.code == "answer_changed"
    assert text_of(seen)
    assert STORY.startswith(text_of(seen))
    response = seen[0]["response"]["id"]
    assert openai_client.responses.retrieve(response).output_text == "It was all otherwise."
    assert text_of(dicts(openai_client.responses.retrieve(response, stream=True))) == "It was all otherwise."
    with pytest.raises(openai.APIError) as failed:
        list(openai_client.responses.retrieve(response, stream=True, starting_after=number_of(seen[-1])))
    assert failed.value.code == "answer_changed"
    before = seen[place_of("response.output_text.delta", seen) - 3]
    rest = openai_client.responses.retrieve(response, stream=True, starting_after=number_of(before))
    assert text_of(dicts(rest)) == "It was all otherwise."


def test_text_beside_a_call_is_a_message_before_it(openai_client: OpenAI) -> None:
    """The model writes an answer and calls a function of the caller at once."""
    with openai_client.responses.stream(model="host", input="tell it and ask", tools=[WEATHER]) as stream:
        events = dicts(stream)
        final = stream.get_final_response()
    assert text_of(events) == STORY
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    (call,) = [item for item in final.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Oslo"}
    answer = openai_client.responses.create(
        model="host",
        previous_response_id=final.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "3 degrees"}],
    )
    assert "3 degrees" in answer.output_text
