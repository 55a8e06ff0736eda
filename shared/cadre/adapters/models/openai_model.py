"""Any OpenAI-compatible endpoint as a Model, through the `openai` client."""

import asyncio
import base64
import contextlib
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from cadre.adapters.http_options import http_options
from cadre.adapters.models.answer import FailedAnswer, MalformedAnswer
from cadre.adapters.models.context_size import Excess, context_of, excess_of, is_unnamed
from cadre.adapters.models.event_stream import END_OF_STREAM, MalformedBody
from cadre.adapters.models.failure import (
    Refusal,
    UnreadCall,
    bounds,
    complains_of,
    ended_answer,
    failed_answer,
    failed_connection,
    failed_silence,
    failed_status,
    most_named,
    names_a_bound,
    refused_call,
    shown_url,
)
from cadre.adapters.models.openai_client import (
    Answer,
    EndpointLost,
    EndpointRefused,
    OpenAIClient,
    answer_of,
    create,
)
from cadre.adapters.models.profiles import taught_by
from cadre.adapters.models.raw_answer import RawAnswer
from cadre.adapters.models.request_body import TOKEN_LIMITS, chat_body, limits_of, raw_body
from cadre.adapters.models.request_slots import RequestSlots
from cadre.adapters.models.usage import estimated
from cadre.engine.answers.reasoning import for_people, has_tag, lacks_opening
from cadre.engine.context.context_budget import ANSWER, answer_tokens
from cadre.engine.model_request import ModelRequest
from cadre.errors import BlobMissing, ModelRefused, ModelUnavailable, SettingError
from cadre.ports import Blobs, Confirm, ModelReply, OnText
from cadre.settings import ModelSettings
from cadre.spec.model import ModelSpec

log = logging.getLogger("cadre.model")

CONNECT_SECONDS = 10.0

_ENCRYPTION = re.compile(r"encrypted[_ ]content|\binclude\b", re.IGNORECASE)
"""Words of a refusal by an endpoint that does not take reasoning, or gives none to take along."""

_URL_HINT = "; does the URL end as it should (most end in /v1)?"

_USAGE_SECONDS, _END_SECONDS = 10.0, 1.0
"""The timeouts for what follows the finish_reason, and for the end of a body after `[DONE]`."""

_THINKS = re.compile(
    r"\br1\b|qwq|think|reason|magistral|deephermes|nemotron|exaone-deep|skywork-or|minimax-m|seed-oss|mimo"
    r"|glm-(4\.[5-9]|[5-9])",
    re.IGNORECASE,
)
"""Names of models whose chat templates often open a thought before the answer begins."""

_REFUSED = (400, 404, 415, 422, 501)
"""Statuses of requests that an endpoint does not take as they are."""

_LIST_SECONDS = 3.0
"""The timeout for listing an endpoint's models, after which it is used without the list."""

_LEAST_ANSWER_TOKENS = 16
"""A smaller limit of an answer is not tried."""

_MOST_LESSONS = 8
"""Refusals of one request that are answered by another form of it: more than a profile has keys."""

_TOKEN_CHARACTERS = 16
"""More than a token has in any text, on the average."""


async def unconfirmed() -> None:
    """Let a request be sent as it is."""


class OpenAIModel:
    """One agent's model. The client library is loaded with the first call, or by `load` before it.

    Args:
        settings_now: asked before each call where the model is by now; None: where `settings` says.
        slots: shared by the models of a process; None: this model has its own.
    """

    def __init__(
        self,
        spec: ModelSpec,
        settings: ModelSettings,
        blobs: Blobs,
        settings_now: Callable[[], ModelSettings] | None = None,
        slots: RequestSlots | None = None,
    ) -> None:
        self._slots = slots if slots is not None else RequestSlots()
        self._spec = spec
        self._blobs = blobs
        self._settings = settings
        self._settings_now = settings_now
        self._estimates = False
        self._use(settings)

    def _use(self, settings: ModelSettings) -> None:
        spec = self._spec
        self._settings = settings
        self._url = spec.url or settings.url
        self._name = spec.name or settings.name
        self._listed_context: int | None = None
        self._learned: dict[str, Any] = {}
        self._limits = limits_of(spec, self._url, self._name)
        self._is_opened = spec.api == "chat" and self._is_named_to_think()
        """The chat template opens a thought before the answer begins: by the model's name, until an answer shows it."""
        self._endpoint = OpenAIClient(
            self._url,
            spec.key_env,
            spec.timeout,
            min(CONNECT_SECONDS, spec.timeout),
        )

    async def _follow(self) -> None:
        """Switch to the current endpoint; while there is no endpoint, it may come back at its last address."""
        settings = self._settings_now() if self._settings_now is not None else self._settings
        if settings.url and settings != self._settings:
            left = self._endpoint
            self._use(settings)
            await left.close()

    async def complete(self, request: ModelRequest, on_text: OnText, confirm: Confirm = unconfirmed) -> ModelReply:
        """Make one call, without retries; cancelling it closes the connection. Awaits `confirm` before it sends.

        Raises ModelUnavailable, ModelRefused.
        """
        await self._follow()
        if (missing := self.missing()) is not None:
            raise ModelRefused(missing)
        self._learn(request.learned.get(self._limits.id, {}))
        body = await self._body(request)
        names = [tool["function"]["name"] for tool in request.tools]
        answer: Answer
        if request.raw is None:
            answer = answer_of(self._spec, request.stop, on_text, request.block, names)
        else:
            answer = RawAnswer(answer_of(self._as_asked(request), [], on_text), request.api, on_text)
        if self._is_opened:
            answer.expect_thought()
        # Waiting here is no silence of the endpoint: nothing was sent yet.
        async with self._slots.slot(self._url, self._name, self._spec.parallel):
            await confirm()
            sent_at = time.monotonic()
            try:
                async with asyncio.timeout(self._spec.seconds):
                    await self._ask(request, body, answer)
            except TimeoutError:
                text = f"is not whole after {self._spec.seconds:g} s; model.seconds sets how long it may take"
                raise failed_answer(self._url, text) from None
            except UnreadCall as error:
                return self._with_usage(request, refused_call(error.refusal, names), is_cut=False)
        try:
            reply = await answer.done()
        except MalformedAnswer as error:
            hint = _URL_HINT if error.is_foreign else ""
            raise failed_answer(self._url, f"cannot be used: {error}{hint}") from None
        first = round(answer.first_at - sent_at, 3) if answer.first_at is not None else None
        reply = msgspec.structs.replace(reply, server=_server_of(self._url), first_seconds=first)
        if request.raw is not None:
            used = reply.usage if reply.usage.total_tokens else estimated(request, reply)
            return msgspec.structs.replace(reply, usage=used, context=self._listed_context)
        reply = ended_answer(self._url, reply, names)
        if reply.content:
            opens = lacks_opening(reply.content) if has_tag(reply.content) else self._is_named_to_think()
            self._is_opened = self._spec.api == "chat" and opens
        reply = self._with_thoughts(reply)
        if not reply.usage.total_tokens:
            reply = self._with_usage(request, reply, is_cut=answer.is_over)
        known, of = request.learned.get(self._limits.id, {}), self._limits.id
        learned = {key: value for key, value in self._learned.items() if key not in known or known[key] != value}
        return msgspec.structs.replace(reply, context=self._listed_context, endpoint=of, learned=learned)

    async def load(self) -> None:
        """Load the client library, in a thread, and asks what context the model has, where the spec does not say it.

        The first call says what is wrong with the endpoint or its key.
        """
        if self.missing() is None:
            with contextlib.suppress(ModelRefused, EndpointRefused, EndpointLost, TimeoutError, ValueError):
                await self._endpoint.load()
                if is_unnamed(self._spec):
                    async with asyncio.timeout(_LIST_SECONDS), self._endpoint.client_for_request() as client:
                        listed = await client.get("/models", cast_to=object)
                    self._listed_context = self._limits.context = context_of(listed, self._name)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()

    def _is_named_to_think(self) -> bool:
        return _THINKS.search(self._name) is not None

    def _with_thoughts(self, reply: ModelReply) -> ModelReply:
        """Return the reply with its content as it came among its items, where the endpoint wants its thoughts back."""
        if self._limits.profile.reasoning_back != "verbatim" or for_people(reply.content) == reply.content:
            return reply
        message, rest = {"type": "message"}, reply.items
        if rest and rest[0]["type"] == "message":
            message, rest = rest[0], rest[1:]
        return msgspec.structs.replace(reply, items=[{**message, "content": reply.content}, *rest])

    def missing(self) -> str | None:
        """Say what the settings lack for a call, and what to do; None when nothing."""
        if not self._url:
            return "no model endpoint: set CADRE_MODEL_URL or model.url in the agent's spec"
        if not self._url.startswith(("http://", "https://")):
            url = shown_url(self._url)
            return f"the model endpoint {url!r} is no URL: it must begin with http:// or https://"
        try:
            http_options(self._url, follows=True)
        except SettingError as error:
            return str(error)
        if not self._name:
            return "no model name: set CADRE_MODEL or model.name in the agent's spec"
        return None

    def _with_usage(self, request: ModelRequest, reply: ModelReply, *, is_cut: bool) -> ModelReply:
        # The end of a stream, where usage stands, is not waited for behind what was asked for.
        if not self._estimates and not is_cut:
            self._estimates = True
            url = shown_url(self._url)
            log.warning("the model endpoint %s does not tell what calls use: tokens are estimated", url)
        return msgspec.structs.replace(reply, usage=estimated(request, reply))

    def _as_asked(self, request: ModelRequest) -> ModelSpec:
        """Return the spec with the API that the request is of."""
        return self._spec if request.raw is None else msgspec.structs.replace(self._spec, api=request.api)

    async def _body(self, request: ModelRequest) -> dict[str, Any]:
        if request.raw is not None:
            return raw_body(self._spec, request, self._name, self._limits)
        seen = msgspec.structs.replace(request, messages=await with_images(request.messages, self._blobs))
        return chat_body(self._spec, seen, self._name, self._limits)

    def _learn(self, keys: dict[str, Any]) -> None:
        """Hold these keys of the endpoint's profile for true from now on."""
        if any(key not in self._learned or self._learned[key] != value for key, value in keys.items()):
            self._learned |= keys
            learned = limits_of(self._spec, self._url, self._name, self._learned)
            self._limits.profile = learned.profile

    async def _ask(self, request: ModelRequest, body: dict[str, Any], answer: Answer) -> None:
        """Send the request and add what comes back to `answer`. Raises ModelUnavailable, ModelRefused."""
        taught = 0
        while True:
            try:
                await self._send(request, body, answer)
                return
            except EndpointRefused as error:
                refusal = error.refusal
            again = None
            if not answer.begun:
                keys = taught_by(refusal, body, self._spec, self._limits.profile)
                if keys and taught < _MOST_LESSONS:
                    taught += 1
                    self._learn(keys)
                    again = await self._body(request)
                elif request.raw is None:
                    again = self._otherwise(body, refusal) or self._without_form(body, refusal, request)
                if again == body:
                    again = None
            if again is None:
                if refusal.about_call and body.get("tools") and request.raw is None:
                    raise UnreadCall(refusal) from None
                raise failed_status(self._spec, self._url, refusal, body) from None
            body = again

    def _otherwise(self, body: dict[str, Any], refusal: Refusal) -> dict[str, Any] | None:
        """Return the request without optional parts that the endpoint does not take; None if they are not the reason
        for the refusal."""
        if "include" in body and refusal.status in (400, 404, 422) and _ENCRYPTION.search(refusal.text):
            # This model does not reason, or what it is shown is the reasoning of another one.
            self._limits.encrypted = refusal.code == "invalid_encrypted_content"
            return {key: value for key, value in body.items() if key != "include"}
        return self._limited_otherwise(body, refusal)

    def _without_form(self, body: dict[str, Any], refusal: Refusal, request: ModelRequest) -> dict[str, Any] | None:
        """Return the request without the form of its answer, where it can do without and nothing else was refused."""
        is_refusal = refusal.status in _REFUSED and not refusal.too_long and not refusal.filtered
        if "response_format" not in body or request.is_form_needed or not is_refusal:
            return None
        return {key: value for key, value in body.items() if key != "response_format"}

    def _is_limit_set(self) -> bool:
        return self._spec.max_tokens is not None

    def _limited_otherwise(self, body: dict[str, Any], refusal: Refusal) -> dict[str, Any] | None:
        """Return the request under the other name of its limit of tokens, or with a smaller limit or none, where that
        may be why it was refused; None where it is not. A limit that the spec sets only changes its name."""
        name = next((name for name in TOKEN_LIMITS if name in body), None)
        if name is None:
            return None
        rest = {key: value for key, value in body.items() if key != name}
        if bounds(name, refusal) and not self._is_limit_set():
            self._limits.answer = most_named(refusal, body[name])
            if self._limits.answer is not None:
                return {**rest, name: self._limits.answer}
            self._learn({"token_limit": None})
            return rest
        if complains_of(name, refusal) and not (self._is_limit_set() and names_a_bound(refusal)):
            other = next(one for one in TOKEN_LIMITS if one != name)
            first = "token_limit" not in self._learned and self._spec.api == "chat"
            if self._is_limit_set() and (not first or self._spec.token_limit is not None):
                return None
            self._learn({"token_limit": other if first else None})
            return {**rest, other: body[name]} if first else rest
        if self._is_limit_set() or not refusal.too_long:
            return None
        excess = excess_of(refusal.text)
        self._limits.context = excess.context or self._limits.context
        if excess.context is not None and excess.tokens is not None and excess.tokens >= excess.context:
            return None
        # The answer alone may be what there is no room for: the endpoint's context is smaller than the spec's.
        limit = _shorter(self._spec, body[name], excess)
        return {**rest, name: limit} if limit >= _LEAST_ANSWER_TOKENS else None

    async def _send(self, request: ModelRequest, body: dict[str, Any], answer: Answer) -> None:
        """As `_ask`, but raises EndpointRefused."""
        spec, is_raw = self._as_asked(request), request.raw is not None
        most = spec.chars if is_raw else self._most_characters()
        try:
            async with (
                self._endpoint.client_for_request() as client,
                contextlib.aclosing(create(client, spec, body, is_raw=is_raw)) as sent,
            ):
                await self._take(sent, answer, most)
        except EndpointLost as error:
            # Behind its finish_reason nothing is missing but what the answer has used.
            if not answer.finished:
                raise self._lost(error) from None
        except FailedAnswer as error:
            raise self._endpoint.refused(error.error) from None
        except MalformedBody as error:
            if error.is_page:
                raise failed_answer(self._url, f"cannot be used: it is a page of HTML{_URL_HINT}") from None
            raise failed_answer(self._url, f"is malformed: {error}") from None
        except MalformedAnswer as error:
            raise failed_answer(self._url, f"is malformed: {self._endpoint.redacted(str(error))}") from None

    async def _take(self, sent: AsyncGenerator[Any, None], answer: Answer, most: int) -> None:
        """Add all that comes, up to `most` characters; wait no longer than needed for what may follow a whole
        answer."""
        ended = False
        while True:
            grace = _END_SECONDS if ended else _USAGE_SECONDS if answer.finished else None
            try:
                async with asyncio.timeout(grace) as waiting:
                    piece = await anext(sent)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if waiting.expired():
                    return
                raise
            if piece is END_OF_STREAM:
                ended = True
                answer.end()
                continue
            await answer.add(piece)
            if answer.characters > most:
                answer.cut()
                return
            if answer.is_over:
                return

    def _most_characters(self) -> int:
        """Return what no answer within its limit of tokens is longer than: some endpoints take no limit, or pass it
        over.
        """
        given = [value for name in TOKEN_LIMITS if isinstance(value := self._spec.extra_body.get(name), int)]
        return _TOKEN_CHARACTERS * max(ANSWER, answer_tokens(self._spec), *given)

    def _lost(self, error: EndpointLost) -> ModelUnavailable:
        if error.how == "silent":
            return failed_silence(self._url, self._spec.timeout)
        if error.how == "unreachable":
            return failed_connection(self._url, str(error) or "it did not answer in time")
        return failed_answer(self._url, f"broke off: {error}")


def _server_of(url: str) -> str:
    """Return host and port of an endpoint's URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _shorter(spec: ModelSpec, limit: int, excess: Excess) -> int:
    """Return the limit of tokens to try next, after a refusal of this one that names these sizes."""
    if excess.context is not None:
        most = answer_tokens(spec, excess.context)
        least = most if excess.tokens is None else min(most, excess.context - excess.tokens)
        if least < limit:
            return least
    return limit // 4


async def with_images(messages: list[dict[str, Any]], blobs: Blobs) -> list[dict[str, Any]]:
    """Return the messages with each `blob:` image as a `data:` URL. Raises ModelRefused."""
    return [await _with_images(message, blobs) for message in messages]


async def _with_images(message: dict[str, Any], blobs: Blobs) -> dict[str, Any]:
    parts = message.get("content")
    if not isinstance(parts, list):
        return message
    return {**message, "content": [await _resolved(part, blobs) for part in parts]}


async def _resolved(part: Any, blobs: Blobs) -> Any:
    image = part.get("image_url") if isinstance(part, dict) and part.get("type") == "image_url" else None
    if not isinstance(image, dict) or not str(image.get("url", "")).startswith("blob:"):
        return part
    try:
        data = await blobs.get(image["url"])
    except BlobMissing as error:
        raise ModelRefused(f"an image of the conversation is gone: {error}") from error
    kind = image_type(data)
    if kind is None:
        raise ModelRefused(f"{image['url']} is no image that a model can read: use PNG, JPEG, GIF or WebP")
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return {**part, "image_url": {**image, "url": url}}


def image_type(data: bytes) -> str | None:
    """Return the MIME type that the first bytes of an image tell."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None
