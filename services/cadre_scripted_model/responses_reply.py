"""The shapes of the Responses API on the wire: whole responses, and the events of streamed ones."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cadre_scripted_model import MODEL_ID
from cadre_scripted_model.replies import Completion, slices
from cadre_scripted_model.request import RequestView

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a response is incomplete, by the `finish` of the script."""

FAILED, ERROR = "failed", "error"
"""Two more words for `finish`: the response fails, or the stream ends with an error."""

_FAILURE = {"code": "server_error", "message": "the response failed, as the script asked for"}


def response_body(completion: Completion, view: RequestView) -> dict[str, Any]:
    """Returns the body of an answer that is not streamed, which is also what ends a stream."""
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
        """Returns the events before the first output."""
        begun = _begun(self._completion, self._view)
        return self._event("response.created", response=begun) + self._event(
            "response.in_progress", response=begun
        )

    def pieces(self, size: int) -> Iterator[bytes]:
        """Yields the output; texts and arguments come in pieces of `size` characters."""
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
        """Returns the event that ends the stream."""
        finish = self._completion.finish
        if finish == ERROR:
            return self._event("error", **_FAILURE, param=None)
        body = response_body(self._completion, self._view)
        return self._event(f"response.{body['status']}", response=body)

    def _message(self, item: dict[str, Any], place: dict[str, Any], size: int) -> Iterator[bytes]:
        part = item["content"][0]
        opened = {**part, "text": "", "annotations": []}
        place = {**place, "content_index": 0}
        yield self._added(
            place["output_index"], {**item, "content": [], "status": "in_progress"}
        ) + self._event("response.content_part.added", **place, part=opened)
        for text in slices(part["text"], size):
            yield self._event("response.output_text.delta", **place, delta=text, logprobs=[])
        noted = b"".join(
            self._event(
                "response.output_text.annotation.added", **place, annotation_index=n, annotation=annotation
            )
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
        return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


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
    """The items of the output: the script's own ones, the text, the calls."""
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
