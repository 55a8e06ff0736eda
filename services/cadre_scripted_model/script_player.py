"""Answers requests from a script, and automatically where no rule matches."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from cadre_scripted_model.auto import auto_reply
from cadre_scripted_model.calls_as_text import as_text
from cadre_scripted_model.paced_response import ConnectionCut, PacedResponse
from cadre_scripted_model.replies import (
    DONE,
    Completion,
    chunk,
    complete,
    completion_body,
    deltas,
    error_body,
    usage_chunk,
)
from cadre_scripted_model.reply import ErrorReply, Reply
from cadre_scripted_model.request import RequestView
from cadre_scripted_model.request_log import LogLine
from cadre_scripted_model.responses_reply import ResponseEvents, response_body
from cadre_scripted_model.script import Script
from cadre_scripted_model.templates import BadTemplate, render


class ScriptPlayer:
    """Plays a script; an empty one is the mode `auto`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._release = asyncio.Event()

    async def respond(self, view: RequestView, body: dict[str, Any], line: LogLine) -> PacedResponse:
        """Returns the reply of the first rule that matches, or the automatic one."""
        most = self.script.context
        if most is not None and view.tokens > most:
            line.rule = "context"
            return respond_with(_too_long(view.tokens, most), view, line)
        chosen = self.script.choose(view)
        line.rule = chosen[0] if chosen else "auto"
        try:
            reply = render_reply(chosen[1], view) if chosen else auto_reply(view)
        except BadTemplate as error:
            # 400, for asking again would fail again.
            message = f"rule {line.rule!r}: {error}"
            reply = Reply(error=ErrorReply(status=400, message=message, code="script_error"))
        if view.in_text and reply.tool_calls:
            reply = as_text(reply)
        response = respond_with(reply, view, line)
        response.release = self._release if reply.hold else None
        return response

    def reset(self) -> None:
        """Begins the script anew."""
        self.script.reset()
        self._release = asyncio.Event()

    def release(self) -> None:
        """Has the replies that are held go out, and those that would be from now on."""
        self._release.set()


def respond_with(reply: Reply, view: RequestView, line: LogLine) -> PacedResponse:
    """Returns the response that plays a reply: streamed if that was asked for, an error always as one JSON body."""
    status, headers = 200, {}
    if reply.error is not None:
        status, data = reply.error.status, error_body(reply.error)
        headers = {name: str(value) for name, value in reply.error.headers.items()}
    else:
        completion = complete(reply, view, line.n, int(time.time()))
        if view.stream:
            headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
            streamed = _streamed if view.api == "chat" else _streamed_response
            return PacedResponse(200, headers, streamed(reply, completion, view), line)
        data = completion_body(completion) if view.api == "chat" else response_body(completion, view)
    body = msgspec.json.encode(data)
    headers |= {"content-type": "application/json", "content-length": str(len(body))}
    return PacedResponse(status, headers, _one_piece(reply, body), line)


def _too_long(tokens: int, most: int) -> Reply:
    """Returns the error of a request that exceeds the context, in the words of real endpoints."""
    message = (
        f"This model's maximum context length is {most} tokens. However, your messages resulted in {tokens} tokens."
        " Please reduce the length of the messages."
    )
    return Reply(
        error=ErrorReply(status=400, message=message, param="messages", code="context_length_exceeded")
    )


def render_reply(reply: Reply, view: RequestView) -> Reply:
    """Returns the reply with its templates filled in. Raises BadTemplate."""
    data = render(msgspec.to_builtins(reply), view)
    if "content" in data and not isinstance(data["content"], str | None):
        data["content"] = msgspec.json.encode(data["content"]).decode()
    if "error" in data:
        data["error"]["message"] = str(data["error"].get("message", ErrorReply(status=400).message))
    try:
        return msgspec.convert(data, Reply)
    except msgspec.ValidationError as error:
        raise BadTemplate(f"the reply, once rendered, is no reply: {error}") from error


async def _one_piece(reply: Reply, body: bytes) -> AsyncGenerator[bytes, None]:
    await asyncio.sleep(reply.latency)
    if reply.drop_after is not None:
        yield body[: len(body) // 2]
        raise ConnectionCut
    yield body


async def _streamed(reply: Reply, completion: Completion, view: RequestView) -> AsyncGenerator[bytes, None]:
    await asyncio.sleep(reply.latency)
    yield chunk(completion, {"role": "assistant", "content": ""})
    for sent, delta in enumerate(deltas(completion, reply.chunk)):
        if sent == reply.drop_after:
            raise ConnectionCut
        yield chunk(completion, delta)
        await asyncio.sleep(reply.delay)
    if reply.drop_after is not None:
        raise ConnectionCut
    yield chunk(completion, {}, completion.finish)
    if view.include_usage:
        yield usage_chunk(completion)
    yield DONE


async def _streamed_response(
    reply: Reply, completion: Completion, view: RequestView
) -> AsyncGenerator[bytes, None]:
    await asyncio.sleep(reply.latency)
    events = ResponseEvents(completion, view)
    yield events.opening()
    for sent, piece in enumerate(events.pieces(reply.chunk)):
        if sent == reply.drop_after:
            raise ConnectionCut
        yield piece
        await asyncio.sleep(reply.delay)
    if reply.drop_after is not None:
        raise ConnectionCut
    yield events.ending()
