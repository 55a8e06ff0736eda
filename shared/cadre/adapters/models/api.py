"""The two APIs that a model is asked through: chat completions, and responses. Requests are those of chat completions
up to here."""

import time
from typing import Any

from cadre.adapters.models.answer import ModelAnswer
from cadre.adapters.models.openai_client import post
from cadre.adapters.models.responses_answer import ResponsesAnswer
from cadre.adapters.models.responses_request import responses_body
from cadre.ports import OnText
from cadre.spec.model import ModelSpec

Answer = ModelAnswer | ResponsesAnswer


def answer_of(spec: ModelSpec, stop: list[str], on_text: OnText) -> Answer:
    """Collects what the model's API sends for one request."""
    kind = ResponsesAnswer if spec.api == "responses" else ModelAnswer
    return kind(stop, on_text, time.monotonic, spec.chars)


async def create(client: Any, spec: ModelSpec, body: dict[str, Any]) -> Any:
    """Sends a chat completion request through the model's API; returns the answer, or the stream of its pieces, as
    plain JSON."""
    is_responses = spec.api == "responses"
    path, body = ("/responses", responses_body(body)) if is_responses else ("/chat/completions", body)
    return await post(client, path, {**body, **spec.extra_body})
