"""A whole answer of a model as the stream that a program asked for."""

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

DONE = b"data: [DONE]\n\n"


class StreamForm(NamedTuple):
    """The format of an API's streams."""

    whole: Callable[[dict[str, Any]], Iterable[bytes]]
    """Makes the stream of a whole answer."""
    piece: Callable[[dict[str, Any]], bytes]
    """Makes what is sent of one piece of an endpoint's stream."""
    begins: Callable[[dict[str, Any]], bool]
    """Says whether a stream may begin with a piece."""
    end: bytes = b""
    """The bytes after the last piece."""


def chat_piece(chunk: dict[str, Any], *, with_usage: bool) -> bytes:
    """Return a chunk of a chat completion as a server-sent event; b"" for one that holds only a usage which the program
    has not requested."""
    if with_usage:
        return _event(chunk)
    return _event({**chunk, "usage": None}) if chunk.get("choices") else b""


def response_piece(event: dict[str, Any]) -> bytes:
    """Return an event of the Responses API as a server-sent event."""
    return f"event: {event.get('type', '')}\n".encode() + _event(event)


def chat_stream(answer: dict[str, Any], *, with_usage: bool) -> Iterable[bytes]:
    """Yield a chat completion as server-sent events."""
    base = {key: value for key, value in answer.items() if key not in ("choices", "usage")}
    base["object"] = "chat.completion.chunk"
    choices = answer.get("choices") or []
    for choice in choices:
        for delta in _deltas(choice.get("message") or {}):
            yield _event({**base, "choices": [_piece(choice, delta)]})
    for choice in choices:
        about = {key: value for key, value in choice.items() if key not in ("message", "finish_reason")}
        end = {**about, "delta": {}, "finish_reason": choice.get("finish_reason") or "stop"}
        yield _event({**base, "choices": [end]})
    if with_usage:
        yield _event({**base, "choices": [], "usage": answer.get("usage")})
    yield DONE


def _piece(choice: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": choice.get("index", 0), "delta": delta, "finish_reason": None}


def _deltas(message: dict[str, Any]) -> Iterable[dict[str, Any]]:
    yield {"role": message.get("role", "assistant"), "content": ""}
    for key, value in message.items():
        if key not in ("role", "tool_calls") and value is not None:
            yield {key: value}
    for place, call in enumerate(message.get("tool_calls") or []):
        yield {"tool_calls": [{"index": place, **call}]}


def response_stream(answer: dict[str, Any]) -> Iterable[bytes]:
    """Yield a response of the Responses API as server-sent events."""
    begun = {**answer, "status": "in_progress", "output": [], "usage": None}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.in_progress", {"response": begun}),
    ]
    for place, item in enumerate(answer.get("output") or []):
        events += [(kind, {"output_index": place, **about}) for kind, about in _of_item(item)]
    failed = answer.get("status") in ("failed", "incomplete")
    events.append((f"response.{answer['status']}" if failed else "response.completed", {"response": answer}))
    for number, (kind, about) in enumerate(events):
        yield response_piece({"type": kind, "sequence_number": number, **about})


def _of_item(item: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    kind, id = item.get("type"), item.get("id", "")
    if kind == "message":
        yield "response.output_item.added", {"item": {**item, "status": "in_progress", "content": []}}
        for place, part in enumerate(item.get("content") or []):
            yield from _of_part(part, {"item_id": id, "content_index": place})
    elif kind == "function_call":
        arguments = item.get("arguments", "")
        yield "response.output_item.added", {"item": {**item, "status": "in_progress", "arguments": ""}}
        yield "response.function_call_arguments.delta", {"item_id": id, "delta": arguments}
        told = {"item_id": id, "arguments": arguments, "name": item.get("name", "")}
        yield "response.function_call_arguments.done", told
    else:
        yield "response.output_item.added", {"item": item}
    yield "response.output_item.done", {"item": item}


def _of_part(part: dict[str, Any], where: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    key = "refusal" if part.get("type") == "refusal" else "text"
    name, text = ("refusal" if key == "refusal" else "output_text"), part.get(key, "")
    more: dict[str, Any] = {"logprobs": []} if key == "text" else {}
    yield "response.content_part.added", {**where, "part": {**part, key: ""}}
    yield f"response.{name}.delta", {**where, "delta": text, **more}
    yield f"response.{name}.done", {**where, key: text, **more}
    yield "response.content_part.done", {**where, "part": part}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"
