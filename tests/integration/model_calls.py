"""Calls of a model through the real client, for tests of it and of the endpoint."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from cadre.adapters.models.openai_model import OpenAIModel
from cadre.engine.model_request import ModelRequest
from cadre.ports import Model, ModelReply
from cadre.settings import ModelSettings
from cadre.spec.model import ModelSpec
from cadre.testing import ModelServer
from harness.memory_ports import MemoryBlobs

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
SEARCH = {"type": "function", "function": {"name": "search", "description": "Searches.", "parameters": {}}}

NO_ENDPOINT = ModelSettings()


def saying(text: str) -> ModelRequest:
    return ModelRequest(messages=[{"role": "user", "content": text}])


Asking = Callable[[ModelRequest], Awaitable[tuple[ModelReply, list[str]]]]


@asynccontextmanager
async def asking(spec: ModelSpec, blobs: MemoryBlobs | None = None) -> AsyncIterator[Asking]:
    """Yields what makes a call through one client: it returns the reply, and the pieces of text that came before it."""
    model = OpenAIModel(spec, NO_ENDPOINT, blobs or MemoryBlobs())
    port: Model = model

    async def call(request: ModelRequest) -> tuple[ModelReply, list[str]]:
        heard: list[str] = []

        async def hear(text: str, *, of_answer: bool = False, chunk: object = None) -> None:
            heard.append(text)

        return await port.complete(request, hear), heard

    try:
        # As an agent does before its first call: on a busy machine the client takes seconds to import.
        await model.load()
        yield call
    finally:
        await model.close()


async def ask(spec: ModelSpec, request: ModelRequest, blobs: MemoryBlobs | None = None) -> tuple[ModelReply, list[str]]:
    """The reply to one call, and the pieces of text that came before it."""
    async with asking(spec, blobs) as call:
        return await call(request)


def spec_for(server: ModelServer, **fields: object) -> ModelSpec:
    return ModelSpec(**{"name": "any", "url": server.url, **fields})  # type: ignore[arg-type]
