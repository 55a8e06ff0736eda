"""Build the model's request: one chat completion, in the terms of the OpenAI API, with the items of earlier answers."""

from typing import Any, Literal

import msgspec

ChatMessage = dict[str, Any]
"""One message of the OpenAI chat format. One of the model has with it the `items` that its endpoint gave for it, and
`items_of`: the id of that endpoint and its model."""


class ModelRequest(msgspec.Struct, kw_only=True):
    """One chat completion, in the terms of the OpenAI API."""

    messages: list[ChatMessage]
    tools: list[dict[str, Any]] = []
    tool_choice: Literal["auto"] | None = None
    """In place of an agent's `required`."""
    stop: list[str] = []
    """Sequences that end the answer. None may stand in a text literal of what is asked for."""
    block: tuple[str, str] | None = None
    """The tags around the block of code that is asked for: what the model writes behind it is cut off."""
    schema: dict[str, Any] | None = None
    """JSON Schema that the answer must fit."""
    is_form_needed: bool = True
    """An endpoint that refuses the schema is not asked without it; False: the messages hold it as well."""
    json_object: bool = False
    """The answer must be some JSON object, for endpoints that hold it to no schema."""
    max_tokens: int | None = None
    """Of the answer, if it must be shorter than the agent allows."""
    native_tools: bool = True
    """True if the tools that the endpoint runs are offered too."""
    fallback: int = 0
    """The index of the model that is asked: 0 is the agent's first, n the nth of its fallbacks."""
    raw: dict[str, Any] | None = None
    """The body as another program wrote it: it is sent unchanged, under the agent's own model, and the answer comes
    back whole (`ModelReply.raw`). `messages` are those in it; all else here does not count."""
    api: Literal["chat", "responses"] = "chat"
    """Of `raw`: the API that its form is of."""
    learned: dict[str, dict[str, Any]] = {}
    """By endpoint and model, the keys of `cadre.spec.model.Profile` that refusals have taught the run."""


_OF_THE_MODEL = frozenset({"message", "function_call", "reasoning"})


def native_calls(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of tools that the endpoint has run."""
    return [item for item in items if item["type"] not in _OF_THE_MODEL]


def without_items(message: ChatMessage) -> ChatMessage:
    """Return a copy of the message as any endpoint takes it."""
    return {key: value for key, value in message.items() if key not in ("items", "items_of")}
