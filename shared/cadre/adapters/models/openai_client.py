"""The `openai` client of one endpoint: loaded with its first request, its key in no error or log line; and the two APIs
that a model is asked through, chat completions and responses."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cadre.adapters.http_options import http_options
from cadre.adapters.models.answer import ModelAnswer
from cadre.adapters.models.event_stream import read_body
from cadre.adapters.models.failure import Refusal, refusal_of, retry_after, root_cause
from cadre.adapters.models.raw_answer import RawAnswer
from cadre.adapters.models.request_body import sent_body
from cadre.adapters.models.responses_answer import ResponsesAnswer
from cadre.engine.answers.code_blocks import end_of_answer
from cadre.errors import ModelRefused, SettingError
from cadre.ports import OnText
from cadre.settings import read_secret
from cadre.spec.model import ModelSpec
from cadre.tools.thread import run_in_thread

if TYPE_CHECKING:
    import openai

PLACEHOLDER_KEY = "none"
"""Sent when there is no key: the client requires one, local servers do not."""


class EndpointRefused(Exception):
    """The endpoint answered with an error; the client's own message, without the key."""

    def __init__(self, message: str, refusal: Refusal) -> None:
        super().__init__(message)
        self.refusal = refusal


class EndpointLost(Exception):
    """No answer, or not all of it. The text is the cause, without the key; it may be empty."""

    def __init__(self, text: str, how: Literal["unreachable", "silent", "cut"]) -> None:
        super().__init__(text)
        self.how = how


def import_openai() -> None:
    """Import the OpenAI client, which takes half a second."""
    # Its client on aiohttp, which it has where that is installed, would be 11 MB of each agent, and is not used.
    sys.modules.setdefault("openai._vendor.httpx_aiohttp", None)  # type: ignore[arg-type]
    import_module("openai")


class OpenAIClient:
    """A client that is opened with its first request, or before it by `load`.

    Args:
        key_env: the variable that holds the key.
        seconds: how long the endpoint may send nothing.
        connect: seconds for a connection.
        part: the part of the client that is used, to be loaded with it; None where requests are posted as they are.
    """

    def __init__(
        self,
        url: str,
        key_env: str,
        seconds: float,
        connect: float,
        part: Callable[[openai.AsyncOpenAI], object] | None = None,
    ) -> None:
        self._url = url
        self._key_env = key_env
        self._seconds, self._connect = seconds, connect
        self._part = part
        self._client: openai.AsyncOpenAI | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def client_for_request(self) -> AsyncIterator[openai.AsyncOpenAI]:
        """Yield the client for one request. Raises EndpointRefused, EndpointLost; ModelRefused for a key that cannot
        be one."""
        client = await self._opened()
        import httpx2
        import openai

        # `from None` throughout: the client's errors may repeat the key.
        try:
            yield client
        except openai.APIStatusError as error:
            raise self._refused(error) from None
        except openai.APIConnectionError as error:
            raise self._lost(error) from None
        except httpx2.RequestError as error:
            raise self._lost(error) from None

    def redacted(self, text: str) -> str:
        """Return the text without the key, which some servers repeat."""
        key = read_secret(self._key_env).strip()
        return text.replace(key, "***") if key else text

    async def load(self) -> None:
        """Open the client now, so that the first request need not wait for it. Raises ModelRefused."""
        await self._opened()

    async def close(self) -> None:
        """Close the connections; the next request reopens them."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _opened(self) -> openai.AsyncOpenAI:
        async with self._opening:
            if self._client is None:
                # Importing takes the better part of a second, on a busy machine much more: neither the event loop
                # nor the end of the process must stand still for it.
                self._client = await run_in_thread(self._open, "openai")
            return self._client

    def _open(self) -> openai.AsyncOpenAI:
        import_openai()
        import httpx2
        import openai

        try:
            options = http_options(self._url, follows=True)
        except SettingError as error:
            raise ModelRefused(str(error)) from error
        # Left to itself the client opens 1,000 at most, and who waits for one takes that for silence of the endpoint.
        connections = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        client = openai.AsyncOpenAI(
            base_url=self._url,
            api_key=self._key() or PLACEHOLDER_KEY,
            # Who waits how long is the caller's decision.
            max_retries=0,
            timeout=openai.Timeout(self._seconds, connect=self._connect),
            http_client=openai.DefaultAsyncHttpxClient(limits=connections, **options),
            # The client would take these from its own variables and send them to any endpoint.
            default_headers={"OpenAI-Organization": openai.omit, "OpenAI-Project": openai.omit},  # type: ignore[dict-item]
        )
        if self._part is not None:
            self._part(client)
        return client

    def _key(self) -> str:
        key = read_secret(self._key_env).strip()
        if not (key.isascii() and key.isprintable()):
            raise ModelRefused(f"the key in {self._key_env} holds characters that no key has: set it again")
        return key

    def _refused(self, error: openai.APIStatusError) -> EndpointRefused:
        body = error.response.text if error.body is not None else ""
        wait = retry_after(error.response.headers, time.time())
        return self.refused(json_or_text(body), error.status_code, wait)

    def refused(self, sent: Any, status: int | None = None, wait: float | None = None) -> EndpointRefused:
        """Return the error for what the endpoint sent: with an HTTP status, or within an answer."""
        refusal = refusal_of(sent, status, wait)
        shown = self.redacted(refusal.text)
        written = None if refusal.generation is None else self.redacted(refusal.generation)
        return EndpointRefused(shown, msgspec.structs.replace(refusal, text=shown, generation=written))

    def _lost(self, error: Exception) -> EndpointLost:
        import httpx2

        # What the client itself raises has the transport's error as its cause.
        cause = error if isinstance(error, httpx2.RequestError) else error.__cause__ or error
        text = self.redacted(root_cause(cause))
        if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
            return EndpointLost(text, "unreachable")
        return EndpointLost(text, "silent" if isinstance(cause, httpx2.TimeoutException) else "cut")


async def post(client: openai.AsyncOpenAI, path: str, body: dict[str, Any]) -> AsyncGenerator[Any, None]:
    """Post a request as it is; yield what comes back as plain JSON: one whole answer, or the pieces of a stream and
    END_OF_STREAM where the endpoint marks its end.

    The client's own methods walk a request field by field and make an object of each piece of an answer: of a long
    conversation that was most of an agent's work. Its stream also hides what comes in the place of a stream.

    Raises MalformedBody, and what the client raises.
    """
    import httpx2
    import openai

    content, is_stream = msgspec.json.encode(body), bool(body.get("stream"))
    if is_stream:
        stream = await client.post(
            path, cast_to=object, content=content, stream=True, stream_cls=openai.AsyncStream[object]
        )
        response = stream.response
    else:
        response = await client.post(path, cast_to=httpx2.Response, content=content)
    try:
        async for data in read_body(response.aiter_bytes()):
            yield data
    finally:
        await response.aclose()


def json_or_text(body: str) -> Any:
    """Return the JSON value of a body, or the body if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


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


def create(client: Any, spec: ModelSpec, body: dict[str, Any], *, is_raw: bool = False) -> AsyncGenerator[Any, None]:
    """Send a chat completion request through the model's API, or a `raw` one as it is; yield what `post` does."""
    path = "/responses" if spec.api == "responses" else "/chat/completions"
    return post(client, path, body if is_raw else sent_body(spec, body))
