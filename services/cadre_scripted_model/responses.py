"""The Responses API: its requests read as chat completion requests, so that one script serves both, and its
responses on the wire, whole or as events."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cadre.delivery.codec import on_one_line
from cadre_scripted_model import MODEL_ID
from cadre_scripted_model.replies import Completion, slices
from cadre_scripted_model.request import BadRequest, RequestView, read_request

_CALL, _RESULT = "function_call", "function_call_output"


def read_responses_request(body: object) -> RequestView:
    """Return what a request's JSON body says. Raises BadRequest."""
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise BadRequest("input must be a text or a list with at least one item", "input")
    for index, item in enumerate(items):
        if not isinstance(item, dict) or not (item.get("role") or item.get("type")):
            raise BadRequest(f"input[{index}] must be an object with a role or a type", "input")
    _check_calls(items)
    system = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    chat = {
        "model": body.get("model"),
        "messages": [*system, *_messages(items)],
        "tools": [_tool(tool) for tool in body.get("tools") or []],
        "tool_choice": _tool_choice(body.get("tool_choice")),
        "parallel_tool_calls": body.get("parallel_tool_calls"),
        "response_format": _response_format((body.get("text") or {}).get("format")),
        "stream": body.get("stream"),
    }
    return msgspec.structs.replace(read_request(chat), body=body, api="responses")


def _check_calls(items: list[dict[str, Any]]) -> None:
    """Raise BadRequest for a result without its call, and the other way round, in the words of the real API."""
    calls = {str(item.get("call_id")) for item in items if item.get("type") == _CALL}
    results = {str(item.get("call_id")) for item in items if item.get("type") == _RESULT}
    for lone in sorted(results - calls):
        raise BadRequest(f"No tool call found for function call output with call_id {lone}.", "input")
    for lone in sorted(calls - results):
        raise BadRequest(f"No tool output found for function call {lone}.", "input")


def _messages(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items as messages: what the model said and called in one answer is one message."""
    messages: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == _RESULT:
            content = _content(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        elif kind == "message" and item.get("role") != "assistant":
            messages.append({"role": str(item.get("role")), "content": _content(item.get("content"))})
        else:
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            _add_said(messages[-1], kind, item)
    return messages


def _add_said(message: dict[str, Any], kind: str, item: dict[str, Any]) -> None:
    if kind == "message":
        content = _content(item.get("content"))
        texts = [content] if isinstance(content, str) else [str(part.get("text") or "") for part in content]
        message["content"] += "".join(texts)
    elif kind == _CALL:
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        called = {"id": item.get("call_id"), "type": "function", "function": function}
        message.setdefault("tool_calls", []).append(called)


def _content(content: object) -> Any:
    """Return a message's content; images as chat completions have them."""
    if not isinstance(content, list):
        return content or ""
    return [
        {"type": "image_url", "image_url": {"url": part.get("image_url")}}
        if part.get("type") == "input_image"
        else part
        for part in content
        if isinstance(part, dict)
    ]


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def _response_format(form: Any) -> Any:
    if not isinstance(form, dict) or form.get("type") == "text":
        return None
    return {"type": "json_schema", "json_schema": form} if form.get("type") == "json_schema" else form


_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""The reason why a response is incomplete, by the `finish` of the script."""

FAILED, ERROR = "failed", "error"
"""Two more words for `finish`: the response fails, or the stream ends with an error."""

_FAILURE = {"code": "server_error", "message": "the response failed, as the script asked for"}


def response_body(completion: Completion, view: RequestView) -> dict[str, Any]:
    """Return the body of an answer that is not streamed, which is also what ends a stream."""
    failed = completion.finish in (FAILED, ERROR)
    reason = _INCOMPLETE.get(completion.finish)
    status = "failed" if failed else "incomplete" if reason else "completed"
    usage = {
        "input_tokens": completion.usage["prompt_tokens"],
        "input_tokens_details": {**completion.usage["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": completion.usage["completion_tokens"],
        "output_tokens_details": completion.usage["completion_tokens_details"],
        "total_tokens": completion.usage["total_tokens"],
    }
    return {
        **_begun(completion, view),
        "status": status,
        "error": _FAILURE if failed else None,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": [] if failed else _output(completion),
        "usage": None if failed else usage,
    }


class ResponseEvents:
    """The events of one streamed response, numbered from 0."""

    def __init__(self, completion: Completion, view: RequestView) -> None:
        self._completion = completion
        self._view = view
        self._next = 0

    def opening(self) -> bytes:
        """Return the events before the first output."""
        begun = _begun(self._completion, self._view)
        return self._event("response.created", response=begun) + self._event("response.in_progress", response=begun)

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yield the output; texts and arguments come in pieces of `size` characters."""
        for index, item in enumerate(_output(self._completion)):
            place = {"output_index": index, "item_id": item.get("id")}
            if item["type"] == "message":
                yield from self._message(item, place, size)
            elif item["type"] == "function_call":
                yield self._added(index, {**item, "arguments": "", "status": "in_progress"})
                for text in slices(item["arguments"], size):
                    yield self._event("response.function_call_arguments.delta", **place, delta=text)
                done = {"arguments": item["arguments"], "name": item["name"]}
                yield self._event("response.function_call_arguments.done", **place, **done) + self._item_done(
                    index, item
                )
            else:
                yield self._added(index, item) + self._item_done(index, item)

    def ending(self) -> bytes:
        """Return the event that ends the stream."""
        finish = self._completion.finish
        if finish == ERROR:
            return self._event("error", **_FAILURE, param=None)
        body = response_body(self._completion, self._view)
        return self._event(f"response.{body['status']}", response=body)

    def _message(self, item: dict[str, Any], place: dict[str, Any], size: int) -> Iterator[bytes]:
        part = item["content"][0]
        opened = {**part, "text": "", "annotations": []}
        place = {**place, "content_index": 0}
        yield self._added(place["output_index"], {**item, "content": [], "status": "in_progress"}) + self._event(
            "response.content_part.added", **place, part=opened
        )
        for text in slices(part["text"], size):
            yield self._event("response.output_text.delta", **place, delta=text, logprobs=[])
        noted = b"".join(
            self._event("response.output_text.annotation.added", **place, annotation_index=n, annotation=annotation)
            for n, annotation in enumerate(part["annotations"])
        )
        yield (
            noted
            + self._event("response.output_text.done", **place, text=part["text"], logprobs=[])
            + self._event("response.content_part.done", **place, part=part)
            + self._item_done(place["output_index"], item)
        )

    def _added(self, index: int, item: dict[str, Any]) -> bytes:
        return self._event("response.output_item.added", output_index=index, item=item)

    def _item_done(self, index: int, item: dict[str, Any]) -> bytes:
        return self._event("response.output_item.done", output_index=index, item=item)

    def _event(self, kind: str, /, **fields: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._next, **fields}
        self._next += 1
        return on_one_line(f"event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n")


def _begun(completion: Completion, view: RequestView) -> dict[str, Any]:
    body = view.body
    return {
        "id": completion.id.replace("chatcmpl", "resp"),
        "object": "response",
        "created_at": completion.created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": MODEL_ID,
        "output": [],
        "parallel_tool_calls": view.parallel,
        "temperature": body.get("temperature"),
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p"),
        "max_output_tokens": body.get("max_output_tokens"),
        "previous_response_id": None,
        "store": body.get("store", True),
        "text": body.get("text") or {"format": {"type": "text"}},
        "usage": None,
    }


def _output(completion: Completion) -> list[dict[str, Any]]:
    """Return the items of the output: the script's own ones, the text, the calls."""
    number = completion.id.rpartition("-")[2]
    items = [{"id": f"item_{number}_{n}", **item} for n, item in enumerate(completion.items)]
    if completion.content:
        part = {
            "type": "output_text",
            "text": completion.content,
            "annotations": completion.annotations,
            "logprobs": [],
        }
        message = {"id": f"msg_{number}", "type": "message", "status": "completed", "role": "assistant"}
        items.append({**message, "content": [part]})
    for index, call in enumerate(completion.calls):
        head = {"id": f"fc_{number}_{index}", "type": "function_call", "status": "completed"}
        items.append({**head, "call_id": call["id"], **call["function"]})
    return items
