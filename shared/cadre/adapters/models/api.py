"""The two APIs that a model is asked through: chat completions, and responses. Requests are those of chat completions
up to here."""

import time
from collections.abc import Callable
from typing import Any

from cadre.adapters.models.answer import ModelAnswer
from cadre.adapters.models.responses_answer import ResponsesAnswer
from cadre.adapters.models.responses_request import responses_body
from cadre.ports import OnText
from cadre.spec.model import ModelSpec

Answer = ModelAnswer | ResponsesAnswer


def resource_of(spec: ModelSpec) -> Callable[[Any], object]:
    """The part of the client that requests to the model use."""
    if spec.api == "responses":
        return lambda client: client.responses
    return lambda client: client.chat.completions


def answer_of(spec: ModelSpec, stop: list[str], on_text: OnText) -> Answer:
    """Collects what the model's API sends for one request."""
    kind = ResponsesAnswer if spec.api == "responses" else ModelAnswer
    return kind(stop, on_text, time.monotonic, spec.chars)


async def create(client: Any, spec: ModelSpec, body: dict[str, Any]) -> Any:
    """Sends a chat completion request through the model's API; returns the answer, or the stream of its pieces."""
    more = spec.extra_body or None
    if spec.api == "responses":
        return await client.responses.create(**responses_body(body), extra_body=more)
    return await client.chat.completions.create(**body, extra_body=more)
