"""Answers requests from a script, and by `auto` where the script says nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.responses import Response

from cadre_scripted_model.auto import auto_reply
from cadre_scripted_model.paced_response import Cut, Performance
from cadre_scripted_model.replies import (
    DONE,
    Answer,
    answer,
    chunk,
    completion,
    error_body,
    pieces,
    usage_chunk,
)
from cadre_scripted_model.request import RequestView
from cadre_scripted_model.request_log import Journal, Line
from cadre_scripted_model.script import ErrorReply, Reply, Script
from cadre_scripted_model.templates import BadTemplate, render

JSON = {"content-type": "application/json"}


class Scripted:
    """Plays a script; an empty one is the mode `auto`."""

    def __init__(self, script: Script, journal: Journal) -> None:
        self.script = script
        self._journal = journal

    async def respond(self, view: RequestView, body: dict[str, Any], line: Line) -> Response:
        most = self.script.context
        if most is not None and view.tokens > most:
            line.rule = "context"
            return self._perform(_too_long(view.tokens, most), view, line)
        chosen = self.script.choose(view)
        line.rule = chosen[0] if chosen else "auto"
        try:
            reply = rendered(chosen[1], view) if chosen else auto_reply(view)
        except BadTemplate as error:
            # 400, for asking again would fail again.
            message = f"rule {line.rule!r}: {error}"
            reply = Reply(error=ErrorReply(status=400, message=message, code="script_error"))
        return self._perform(reply, view, line)

    def reset(self) -> None:
        self.script.reset()

    def _perform(self, reply: Reply, view: RequestView, line: Line) -> Response:
        if reply.error is not None:
            headers = {name: str(value) for name, value in reply.error.headers.items()}
            body = msgspec.json.encode(error_body(reply.error))
            return self._whole(reply, body, reply.error.status, headers, line)
        done = answer(reply, view, line.n, int(time.time()))
        if not view.stream:
            return self._whole(reply, msgspec.json.encode(completion(done)), 200, {}, line)
        headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        return Performance(200, headers, _streamed(reply, done, view), self._journal, line)

    def _whole(self, reply: Reply, body: bytes, status: int, headers: dict[str, str], line: Line) -> Response:
        headers = {**headers, **JSON, "content-length": str(len(body))}
        return Performance(status, headers, _one_piece(reply, body), self._journal, line)


def _too_long(tokens: int, most: int) -> Reply:
    """As endpoints say it; no rule has answered then."""
    message = f"This model's maximum context length is {most} tokens; the messages and tools take {tokens}."
    return Reply(
        error=ErrorReply(status=400, message=message, param="messages", code="context_length_exceeded")
    )


def rendered(reply: Reply, view: RequestView) -> Reply:
    """The reply with its templates filled in. Raises BadTemplate."""
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
        raise Cut
    yield body


async def _streamed(reply: Reply, done: Answer, view: RequestView) -> AsyncGenerator[bytes, None]:
    await asyncio.sleep(reply.latency)
    yield chunk(done, {"role": "assistant", "content": ""})
    for sent, delta in enumerate(pieces(done, reply.chunk)):
        if sent == reply.drop_after:
            raise Cut
        yield chunk(done, delta)
        await asyncio.sleep(reply.delay)
    if reply.drop_after is not None:
        raise Cut
    yield chunk(done, {}, done.finish)
    if view.include_usage:
        yield usage_chunk(done)
    yield DONE
