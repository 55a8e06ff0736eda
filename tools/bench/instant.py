"""A model in the process that answers at once: what is left to measure is Cadre."""

from collections.abc import Callable

import msgspec

from cadre.engine.model_request import ModelRequest
from cadre.journal.events import RequestedCall
from cadre.ports import ModelReply, OnText
from cadre.protocol.usage import Usage


class InstantModel:
    """ports.Model whose answers are computed from the request."""

    def __init__(self, decide: Callable[[ModelRequest], ModelReply]) -> None:
        self._decide = decide

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        return self._decide(request)


def call(name: str, **arguments: object) -> ModelReply:
    """An answer that calls one tool or team member."""
    text = msgspec.json.encode(arguments).decode()
    return ModelReply(calls=[RequestedCall(name, text)], usage=Usage(10, 5), model="instant")


def answer(text: str) -> ModelReply:
    return call("final_answer", answer=text)
