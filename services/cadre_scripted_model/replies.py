"""Replies on the wire: chat completions, their streamed chunks, the model list, errors; sent at their pace."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cadre.delivery.codec import on_one_line
from cadre_scripted_model import MODEL_ID, NOT_AN_AI
from cadre_scripted_model.request import CallReply, ErrorReply, Reply, RequestView, rough_tokens
from cadre_scripted_model.request_log import LogLine

DONE = b"data: [DONE]\n\n"


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A reply with all that the wire needs besides."""

    id: str
    created: int
    content: str
    calls: list[dict[str, Any]]
    finish: str
    usage: dict[str, Any]
    items: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []


def complete(reply: Reply, view: RequestView, number: int, created: int) -> Completion:
    """Complete a reply; ids are made from `number`, that of the request; `created` is in Unix seconds."""
    content = cut_at_stop(reply.content or "", view.stop)
    calls = [_call(call, f"call_{number}_{index}") for index, call in enumerate(reply.tool_calls)]
    written = content + "".join(call["function"]["arguments"] for call in calls)
    return Completion(
        id=f"chatcmpl-scripted-{number}",
        created=created,
        content=content,
        calls=calls,
        finish=reply.finish or ("tool_calls" if calls else "stop"),
        usage=_usage(view.tokens, rough_tokens(written), reply),
        items=reply.items,
        annotations=reply.annotations,
    )


def cut_at_stop(text: str, stop: list[str]) -> str:
    """Return the text up to the first of the stop words."""
    places = [place for word in stop if word and (place := text.find(word)) >= 0]
    return text[: min(places)] if places else text


def completion_body(completion: Completion) -> dict[str, Any]:
    """Return the body of an answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.content or None, "refusal": None}
    if completion.annotations:
        message["annotations"] = completion.annotations
    if completion.calls:
        message["tool_calls"] = completion.calls
    choice = {"index": 0, "message": message, "finish_reason": completion.finish, "logprobs": None}
    return {**_head(completion, "chat.completion"), "choices": [choice], "usage": completion.usage}


def deltas(completion: Completion, size: int) -> Iterator[dict[str, Any]]:
    """Yield the deltas that carry the answer, `size` characters each."""
    for text in slices(completion.content, size):
        yield {"content": text}
    if completion.annotations:
        yield {"annotations": completion.annotations}
    for index, call in enumerate(completion.calls):
        function = call["function"]
        opening = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": opening}]}
        for text in slices(function["arguments"], size):
            yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def chunk(completion: Completion, delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return one delta as an event of the stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return _event({**_head(completion, "chat.completion.chunk"), "choices": [choice]})


def usage_chunk(completion: Completion) -> bytes:
    """Return the event that ends a stream with the usage."""
    return _event({**_head(completion, "chat.completion.chunk"), "choices": [], "usage": completion.usage})


def error_body(error: ErrorReply) -> dict[str, Any]:
    """Return the body of an error."""
    kind = error.type or ("rate_limit_error" if error.status == 429 else None)
    kind = kind or ("invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def model_list() -> dict[str, Any]:
    """Return the body of the list of models: the one there is."""
    owner = f"cadre {NOT_AN_AI}"
    return {
        "object": "list",
        "data": [{"id": MODEL_ID, "object": "model", "created": 0, "owned_by": owner}],
    }


def _call(call: CallReply, made_id: str) -> dict[str, Any]:
    written = call.arguments
    arguments = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id or made_id, "type": "function", "function": function}


def _head(completion: Completion, kind: str) -> dict[str, Any]:
    # The answer names the model that gave it, not the one that was asked for.
    return {"id": completion.id, "object": kind, "created": completion.created, "model": MODEL_ID}


def _event(data: dict[str, Any]) -> bytes:
    return on_one_line(b"data: " + msgspec.json.encode(data) + b"\n\n")


def slices(text: str, size: int) -> Iterator[str]:
    """Yield the text in pieces of `size` characters."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _usage(read: int, said: int, reply: Reply) -> dict[str, Any]:
    written = said + reply.reasoning_tokens
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": min(read, reply.cached_tokens)},
        "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
    }


NOT_AN_AI_HEADERS = {"x-cadre-scripted-model": "not-an-ai"}


class ConnectionCut(Exception):
    """The connection is to break off here: raised by the generator of an answer's pieces."""


class PacedResponse(Response):
    """A response whose head is sent with the first piece of its body."""

    def __init__(
        self,
        status: int,
        headers: dict[str, str],
        pieces: AsyncGenerator[bytes, None],
        line: LogLine,
    ) -> None:
        self.status_code = status
        self.background = None
        self.init_headers({**headers, **NOT_AN_AI_HEADERS, "x-cadre-rule": _printable(line.rule)})
        self._pieces = pieces
        self.release: asyncio.Event | None = None
        """Nothing is sent before it is set."""
        self.on_end: Callable[[str], None] = lambda outcome: None
        """Is called once with the outcome, as LogLine knows it, when the response has been sent or broken off."""
        line.status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome = "failed"
        try:
            outcome = await self._play_while_heard(receive, send)
        except asyncio.CancelledError:
            # Only the server cancels a request, when it stops: an open answer is no error then.
            outcome = "cut"
        finally:
            self.on_end(outcome)

    async def _play_while_heard(self, receive: Receive, send: Send) -> str:
        gone = asyncio.ensure_future(_gone(receive))
        playing = asyncio.ensure_future(self._play(send))
        try:
            await asyncio.wait({gone, playing}, return_when=asyncio.FIRST_COMPLETED)
            return playing.result() if playing.done() else "left"
        finally:
            for task in (gone, playing):
                task.cancel()
            await asyncio.gather(gone, playing, return_exceptions=True)

    async def _play(self, send: Send) -> str:
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        started = False
        if self.release is not None:
            await self.release.wait()
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    if not started:
                        await send(head)
                        started = True
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        except ConnectionCut:
            if not started:
                await send(head)
            # A response that ends without its last body message makes the server close the connection.
            return "cut"
        if not started:
            await send(head)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return "answered"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _printable(text: str) -> str:
    return text.encode("ascii", "replace").decode()
