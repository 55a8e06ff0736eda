"""What an endpoint gives beside the text and the calls of an answer: reasoning, what its own tools did, citations.

An item is an output item of the Responses API as the endpoint sent it, but for the text and the call that the answer
holds already: of these it only keeps the place.
"""

from typing import Any

from cadre.engine.model_request import ChatMessage

_OF_THE_MODEL = frozenset({"message", "function_call", "reasoning"})


def native_calls(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the items of tools that the endpoint has run."""
    return [item for item in items if item["type"] not in _OF_THE_MODEL]


def without_items(message: ChatMessage) -> ChatMessage:
    """Return a copy of the message as any endpoint takes it."""
    return {key: value for key, value in message.items() if key not in ("items", "items_of")}
