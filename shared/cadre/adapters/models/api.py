"""The two APIs that a model is asked through: chat completions, and responses. Requests are those of chat completions
up to here."""

import functools
import time
from collections.abc import AsyncGenerator, Collection
from typing import Any

from cadre.adapters.models.answer import ModelAnswer
from cadre.adapters.models.openai_client import post
from cadre.adapters.models.raw_answer import RawAnswer
from cadre.adapters.models.request_body import sent_body
from cadre.adapters.models.responses_answer import ResponsesAnswer
from cadre.engine.answers.code_blocks import end_of_answer
from cadre.ports import OnText
from cadre.spec.model import ModelSpec

Answer = ModelAnswer | ResponsesAnswer | RawAnswer


def answer_of(
    spec: ModelSpec,
    stop: list[str],
    on_text: OnText,
    block: tuple[str, str] | None = None,
    names: Collection[str] = (),
) -> ModelAnswer | ResponsesAnswer:
    """Collect what the model's API sends for one request.

    Args:
        block: the tags around the code that is asked for.
        names: the functions on offer.
    """
    kind = ResponsesAnswer if spec.api == "responses" else ModelAnswer
    end_of = functools.partial(end_of_answer, tags=block) if block is not None else None
    return kind(stop, on_text, time.monotonic, spec.chars, end_of, names)


def create(
    client: Any, spec: ModelSpec, body: dict[str, Any], *, is_raw: bool = False
) -> AsyncGenerator[Any, None]:
    """Send a chat completion request through the model's API, or a `raw` one as it is; yield what `post` does."""
    path = "/responses" if spec.api == "responses" else "/chat/completions"
    return post(client, path, body if is_raw else sent_body(spec, body))
