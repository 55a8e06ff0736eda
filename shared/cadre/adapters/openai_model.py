"""Any OpenAI-compatible endpoint as a Model, through the `openai` client."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any

from cadre.adapters.model_answer import MalformedAnswer, ModelAnswer
from cadre.adapters.model_failure import (
    Refusal,
    failed_answer,
    failed_connection,
    failed_silence,
    failed_status,
    retry_after,
    root_cause,
    shown_url,
)
from cadre.adapters.model_images import with_images
from cadre.answer_schema import is_strict
from cadre.daemon_thread import run_in_thread
from cadre.errors import ModelError, ModelRefused, ModelUnavailable
from cadre.loop.view import ModelRequest
from cadre.ports import Blobs, ModelReply, OnText
from cadre.settings import ModelSettings, read_secret
from cadre.specs import ModelSpec

if TYPE_CHECKING:
    import openai

PLACEHOLDER_KEY = "none"
"""Sent when there is no key: the client wants one, servers on one's own machine do not."""

CONNECT_SECONDS = 10.0


class OpenAIModel:
    """One agent's model. The client library is loaded with the first call: an idle agent stays small."""

    def __init__(self, spec: ModelSpec, settings: ModelSettings, blobs: Blobs) -> None:
        self._spec = spec
        self._url = spec.url or settings.url
        self._name = spec.name or settings.name
        self._blobs = blobs
        self._client: openai.AsyncOpenAI | None = None
        self._opening = asyncio.Lock()

    async def complete(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """One call, without retries; cancelling it closes the connection.

        Raises ModelUnavailable, ModelRefused.
        """
        if (missing := self.missing()) is not None:
            raise ModelRefused(missing)
        body = await self._body(request)
        client = await self._opened()
        answer = ModelAnswer(request.stop, on_text, time.monotonic)
        await self._ask(client, body, answer)
        try:
            return await answer.done()
        except MalformedAnswer as error:
            hint = "; does the URL end as it should (most end in /v1)?" if "no choice" in str(error) else ""
            raise failed_answer(self._url, f"cannot be used: {error}{hint}") from None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def missing(self) -> str | None:
        """What its settings lack, and what to do; None when it can be asked."""
        if not self._url:
            return "no model endpoint: set CADRE_MODEL_URL or model.url in the agent's spec"
        if not self._url.startswith(("http://", "https://")):
            url = shown_url(self._url)
            return f"the model endpoint {url!r} is no URL: it must begin with http:// or https://"
        if not self._name:
            return "no model name: set CADRE_MODEL or model.name in the agent's spec"
        return None

    async def _body(self, request: ModelRequest) -> dict[str, Any]:
        spec = self._spec
        body: dict[str, Any] = {
            "model": self._name,
            "messages": await with_images(request.messages, self._blobs),
        }
        if request.tools:
            body |= {"tools": request.tools, "tool_choice": spec.tool_choice}
        if request.schema is not None:
            schema = {"name": "answer", "strict": is_strict(request.schema), "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.stop and spec.stop:
            body["stop"] = request.stop
        if spec.temperature is not None:
            body["temperature"] = spec.temperature
        most = [tokens for tokens in (spec.max_tokens, request.max_tokens) if tokens is not None]
        if most:
            body["max_tokens"] = min(most)
        if spec.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    async def _opened(self) -> openai.AsyncOpenAI:
        async with self._opening:
            if self._client is None:
                # Importing takes the better part of a second, on a busy machine much more: neither the event loop
                # nor the end of the process must stand still for it.
                self._client = await run_in_thread(self._open, "openai")
            return self._client

    def _open(self) -> openai.AsyncOpenAI:
        import openai

        client = openai.AsyncOpenAI(
            base_url=self._url,
            api_key=self._key() or PLACEHOLDER_KEY,
            # Who waits how long is the run's decision.
            max_retries=0,
            timeout=openai.Timeout(self._spec.timeout, connect=min(CONNECT_SECONDS, self._spec.timeout)),
            # The client would take these from variables of its own and tell them to any endpoint.
            default_headers={"OpenAI-Organization": openai.omit, "OpenAI-Project": openai.omit},  # type: ignore[dict-item]
        )
        # Loads what the first call needs.
        _ = client.chat.completions
        return client

    def _key(self) -> str:
        key = read_secret(self._spec.key_env).strip()
        if not (key.isascii() and (key.isprintable())):
            raise ModelRefused(
                f"the key in {self._spec.key_env} holds characters that no key has: set it again"
            )
        return key

    async def _ask(self, client: openai.AsyncOpenAI, body: dict[str, Any], answer: ModelAnswer) -> None:
        """Sends the request and adds what comes back to `answer`. Raises ModelUnavailable, ModelRefused."""
        import openai

        # `from None` throughout: the client's errors may repeat the key.
        try:
            sent = await client.chat.completions.create(**body, extra_body=self._spec.extra_body or None)
            if not self._spec.stream:
                await answer.add(sent)
                return
            async with sent as stream:
                async for chunk in stream:
                    await answer.add(chunk)
        except openai.APIStatusError as error:
            raise self._failed(error, body) from None
        except openai.APIConnectionError as error:
            raise self._disconnected(error) from None
        except openai.APIError as error:
            raise self._failed_inside(error, body) from None
        except MalformedAnswer as error:
            raise failed_answer(self._url, f"is malformed: {self._hidden(str(error))}") from None
        except json.JSONDecodeError as error:
            raise failed_answer(self._url, f"is malformed: {error}") from None

    def _failed(self, error: openai.APIStatusError, body: dict[str, Any]) -> ModelError:
        refusal = Refusal(
            status=error.status_code,
            text=self._hidden(_server_text(error.body)),
            param=error.param if isinstance(error.param, str) else None,
            code=str(error.code) if error.code else None,
            wait=retry_after(error.response.headers, time.time()),
        )
        return failed_status(self._spec, self._url, refusal, body)

    def _failed_inside(self, error: openai.APIError, body: dict[str, Any]) -> ModelError:
        """An error that the server sends within a stream; some give their status as its code."""
        code = str(error.code or "")
        status = int(code) if re.fullmatch("[45][0-9][0-9]", code) else 500
        refusal = Refusal(status=status, text=self._hidden(error.message), code=code)
        return failed_status(self._spec, self._url, refusal, body)

    def _disconnected(self, error: openai.APIConnectionError) -> ModelUnavailable:
        import httpx2

        cause = error.__cause__ or error
        if isinstance(cause, httpx2.TimeoutException) and not isinstance(cause, httpx2.ConnectTimeout):
            return failed_silence(self._url, self._spec.timeout)
        text = self._hidden(root_cause(cause))
        if isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout):
            return failed_connection(self._url, text or "it did not answer in time")
        return failed_answer(self._url, f"broke off: {text}")

    def _hidden(self, text: str) -> str:
        """The text without the key, which some servers repeat."""
        key = self._key()
        return text.replace(key, "***") if key else text


def _server_text(body: object) -> str:
    """The message in an error body: OpenAI's shape, FastAPI's `detail`, or whatever else came."""
    if isinstance(body, dict):
        said = body.get("message") or body.get("detail") or body.get("error") or body
        return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return str(body or "")
