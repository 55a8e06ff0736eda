"""Answer requests from a script.

Where no rule matches, the automatic reply calls every tool once and then answers with the results.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from cadre.tools.example_values import example
from cadre_scripted_model import NOT_AN_AI
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
from cadre_scripted_model.request import CallReply, ErrorReply, Reply, RequestView, as_text
from cadre_scripted_model.request_log import LogLine
from cadre_scripted_model.responses import ResponseEvents, response_body
from cadre_scripted_model.script import BadTemplate, Script, render

FINAL_ANSWER = "final_answer"
"""A tool of this name ends the conversation, so it is called after all others."""


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


def auto_reply(view: RequestView) -> Reply:
    """Returns the reply to a request that no rule matches."""
    calls = [CallReply(name=name, arguments=_arguments(name, view)) for name in _due(view)]
    if calls:
        return Reply(tool_calls=calls if view.parallel else calls[:1])
    if view.schema is not None:
        value = example(view.schema) if view.schema else {"answer": _summary(view)}
        return Reply(content=json.dumps(value, ensure_ascii=False))
    return Reply(content=_summary(view))


def _due(view: RequestView) -> list[str]:
    """Returns the names of the tools to call now."""
    choice = view.tool_choice
    if choice == "none" or not view.tools:
        return []
    if choice in view.tools:
        return [choice]
    due = [name for name in view.tools if name not in view.called and name != FINAL_ANSWER]
    if not due and FINAL_ANSWER in view.tools:
        return [FINAL_ANSWER]
    # An endpoint that is told "required" must call something, even for the second time.
    return due or (view.tools[:1] if choice == "required" else [])


def _arguments(name: str, view: RequestView) -> dict[str, Any]:
    schema = view.offered[name]
    arguments = example({"type": "object", **schema})
    if name == FINAL_ANSWER:
        for key, shape in (schema.get("properties") or {}).items():
            if isinstance(shape, dict) and shape.get("type", "string") == "string" and _is_free(shape):
                return {**arguments, key: _summary(view)}
    return arguments if isinstance(arguments, dict) else {}


def _is_free(shape: dict[str, Any]) -> bool:
    narrow = ("enum", "const", "pattern", "format", "maxLength", "$ref", "anyOf", "oneOf", "allOf")
    return not any(key in shape for key in narrow)


def _summary(view: RequestView) -> str:
    returned = [f"{name}: {_cut(text)}" for name, texts in view.results.items() for text in texts]
    results = "; ".join(returned) if returned else "no tool was called"
    return f"[{NOT_AN_AI}] Asked: {_cut(view.first)} | Tools returned: {results}"


def _cut(text: str, limit: int = 200) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
