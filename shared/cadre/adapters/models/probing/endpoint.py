"""An endpoint that is probed: each request is bounded in tokens and in time, however the endpoint behaves."""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

import msgspec

from cadre.adapters.models.answer import FailedAnswer, MalformedAnswer
from cadre.adapters.models.event_stream import END_OF_STREAM, MalformedBody
from cadre.adapters.models.failure import failed_answer, failed_connection, failed_status
from cadre.adapters.models.openai_client import EndpointLost, EndpointRefused, OpenAIClient, answer_of, create
from cadre.adapters.models.profiles import profile_of
from cadre.errors import ModelError, ModelRefused
from cadre.ports import ModelReply
from cadre.spec.model import ModelApi, ModelSpec

T = TypeVar("T")

_CONNECT_SECONDS = 5.0


class ProbeFailed(Exception):
    """A request that brought no answer; the text says why. `refused`: the same request would be refused again."""

    def __init__(
        self, text: str, *, refused: bool = False, slow: bool = False, cut: bool = False, sent: str = ""
    ) -> None:
        super().__init__(text)
        self.refused = refused
        self.slow = slow
        """The answer did not end in time."""
        self.cut = cut
        """The connection was lost, before the answer or within it."""
        self.sent = sent
        """The whole text that the endpoint itself sent."""


class ProbeReply(NamedTuple):
    """An answer, and how it came."""

    reply: ModelReply
    pieces: int
    """Chunks that it came in; 1 for one that is not streamed."""
    reasoned: bool
    """The endpoint sent the model's reasoning apart from its answer, or marked it."""

    @property
    def ran_on(self) -> bool:
        """Return whether the answer ended only because its tokens did."""
        return self.reply.finish_reason == "length"


class ProbedEndpoint:
    """The endpoint of a model's spec, which names its URL and its model.

    Args:
        seconds: The timeout of one request, even if data arrives in the meantime.
    """

    def __init__(self, spec: ModelSpec, seconds: float) -> None:
        self._spec = spec
        self.api: ModelApi = spec.api
        """The API that it is asked through."""
        self._seconds = seconds
        self.token_limit: str = profile_of(spec, spec.url, spec.name).token_limit or "max_tokens"
        """The parameter that bounds an answer."""
        connect = min(_CONNECT_SECONDS, seconds)
        self._client = OpenAIClient(spec.url, spec.key_env, seconds, connect)

    async def ask(
        self, content: str | list[dict[str, Any]], tokens: int, *, stream: bool = True, **fields: Any
    ) -> ProbeReply:
        """Ask one question; its answer has at most so many tokens. Raises ProbeFailed."""
        return await self.go_on([{"role": "user", "content": content}], tokens, stream=stream, **fields)

    async def go_on(
        self, messages: list[dict[str, Any]], tokens: int, *, stream: bool = True, **fields: Any
    ) -> ProbeReply:
        """Ask for what follows these messages, in at most so many tokens. Raises ProbeFailed."""
        body: dict[str, Any] = {
            "model": self._spec.name,
            "messages": messages,
            self.token_limit: tokens,
            **({"stream": True, "stream_options": {"include_usage": True}} if stream else {}),
            **fields,
        }
        try:
            return await self._within(self._send(body), body)
        except ProbeFailed as failure:
            if not failure.cut:
                raise
            # Some servers close the connection behind a streamed answer, and the next request finds it closed.
            return await self._within(self._send(body), body)

    async def limit_told(self, tokens: int) -> str:
        """Return what the endpoint says of a request for that many tokens, or "" where it begins to answer it."""
        body = {
            "model": self._spec.name,
            "messages": [{"role": "user", "content": "Say yes."}],
            self.token_limit: tokens,
            "stream": True,
        }
        try:
            await self._within(self._begin(body), body)
        except ProbeFailed as failure:
            return failure.sent
        return ""

    async def models(self) -> list[dict[str, Any]]:
        """Return the endpoint's list of models, with all that it says of each. Raises ProbeFailed."""

        async def listed() -> list[dict[str, Any]]:
            async with self._client.client_for_request() as client:
                page = await client.models.list()
                return [one.model_dump() for one in page.data or []]

        return await self._within(listed(), {})

    async def dimensions(self, name: str) -> int:
        """Return the length of the vector that this model makes of a text. Raises ProbeFailed."""

        async def embedded() -> int:
            async with self._client.client_for_request() as client:
                answer = await client.embeddings.create(model=name, input=["moss"])
                return len(answer.data[0].embedding)

        return await self._within(embedded(), {"model": name})

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _send(self, body: dict[str, Any]) -> ProbeReply:
        async def ignore(_: str, *, of_answer: bool = False, chunk: object = None) -> None: ...

        spec = msgspec.structs.replace(self._spec, api=self.api)
        answer, pieces, reasoned = answer_of(spec, [], ignore), 0, False
        async with (
            self._client.client_for_request() as client,
            aclosing(create(client, spec, body)) as sent,
        ):
            async for piece in sent:
                if piece is END_OF_STREAM:
                    answer.end()
                    continue
                await answer.add(piece)
                pieces += _has_text(piece)
                reasoned = reasoned or _has_reasoning(piece)
        reply = await answer.done()
        reasoned = reasoned or bool(reply.reasoning_tokens) or "<think>" in reply.content
        return ProbeReply(reply, pieces, reasoned)

    async def _begin(self, body: dict[str, Any]) -> None:
        """Send the request, and closes the connection when something of the answer is there."""
        async with (
            self._client.client_for_request() as client,
            aclosing(create(client, self._spec, body)) as sent,
        ):
            await anext(sent, None)

    async def _within(self, request: Coroutine[Any, Any, T], body: dict[str, Any]) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await request
        except TimeoutError:
            raise ProbeFailed(f"no end of the answer within {self._seconds:g} s", slow=True) from None
        except EndpointRefused as error:
            found = failed_status(self._spec, self._spec.url, error.refusal, body)
            raise _failed(found, refused=not error.refusal.passes, sent=str(error)) from None
        except FailedAnswer as error:
            raise ProbeFailed(str(self._client.refused(error.error))) from None
        except EndpointLost as error:
            if error.how == "silent":
                text = f"the endpoint sent nothing for {self._seconds:g} s"
                raise ProbeFailed(text, slow=True) from None
            if error.how == "unreachable":
                cause = str(error) or "it did not answer in time"
                raise _failed(failed_connection(self._spec.url, cause)) from None
            raise ProbeFailed(failed_answer(self._spec.url, f"broke off: {error}").message, cut=True) from None
        except (MalformedAnswer, MalformedBody, TypeError, AttributeError, IndexError) as error:
            text = self._client.redacted(str(error))
            raise _failed(failed_answer(self._spec.url, f"cannot be used: {text}")) from None
        except ModelRefused as error:
            raise _failed(error, refused=True) from None


def _failed(error: ModelError, *, refused: bool = False, sent: str = "") -> ProbeFailed:
    return ProbeFailed(error.message, refused=refused, sent=sent)


def _has_text(piece: Any) -> bool:
    """Return whether it is a chunk of a chat completion, or an event of a response that brings some of its text."""
    return "choices" in piece or str(piece.get("type")).endswith(".delta")


def _has_reasoning(piece: Any) -> bool:
    if "choices" not in piece:
        return "reasoning" in str(piece.get("type"))
    for choice in piece["choices"] or []:
        message = choice.get("delta") or choice.get("message") or {}
        if any(message.get(name) for name in ("reasoning_content", "reasoning")):
            return True
    details = (piece.get("usage") or {}).get("completion_tokens_details") or {}
    return bool(details.get("reasoning_tokens"))
