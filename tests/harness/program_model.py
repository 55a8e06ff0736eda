"""A model endpoint for programs: the answer follows from the conversation, its ids and texts are random as in life, and
a test is called at every request before and behind the answer."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Call = tuple[str, dict[str, Any]]

SCRIPT: dict[int, list[Call]] = {
    0: [("lookup", {"item": "a"})],
    1: [("book", {"n": 1}), ("book", {"n": 2}), ("lookup", {"item": "b"})],
    2: [("book", {"n": 3})],
    3: [("lookup", {"item": "c"}), ("book", {"n": 4})],
}
"""The model's requests, by the number of its answers in the conversation; then it answers in words."""

MODEL_CALLS = 5
EFFECTS = 4


class ProgramModel:
    """The endpoint, in a thread of the test. Also the place that tools ask before and behind their effect.

    Attributes:
        at: called with a label at each point; a test kills there.
        asked: bodies of all model requests.
    """

    def __init__(self, script: dict[int, list[Call]] | None = None) -> None:
        self.script = SCRIPT if script is None else script
        self.at: Callable[[str], None] = lambda label: None
        self.asked: list[dict[str, Any]] = []
        self.refusals: list[int] = []
        """Statuses that the next requests get instead of an answer."""
        self.between: Callable[[int], bool | None] = lambda place: None
        """Called behind each piece of a stream with its place; True breaks the stream off."""
        self.delay: Callable[[dict[str, Any]], float] = lambda body: 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                outer.serve(self, json.loads(self.rfile.read(length) or b"{}"))

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> ProgramModel:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        """Answer one request."""
        if request.path.startswith("/at/"):
            self.at(request.path.removeprefix("/at/"))
            _send(request, b"{}")
            return
        self.asked.append(body)
        number = len(self.asked)
        self.at(f"model{number}.asked")
        if self.refusals:
            _send(request, b'{"error": {"message": "busy"}}', status=self.refusals.pop(0))
            return
        time.sleep(self.delay(body))
        is_chat = request.path.endswith("/chat/completions")
        answer = self._completion(body) if is_chat else self._response(body)
        if body.get("stream"):
            _stream(request, [*(_chunks(answer) if is_chat else _events(answer))], self.between)
        else:
            _send(request, json.dumps(answer).encode())
        self.at(f"model{number}.answered")

    def _decide(self, body: dict[str, Any]) -> tuple[str, list[Call]]:
        said = body.get("messages", body.get("input"))
        said = said if isinstance(said, list) else []
        turns, was_answer = 0, False
        for one in said:
            is_answer = one.get("role") == "assistant" or one.get("type") == "function_call"
            turns += is_answer and not was_answer
            was_answer = is_answer
        names = {(tool.get("function") or tool).get("name") for tool in body.get("tools") or []}
        calls = [call for call in self.script.get(turns, []) if call[0] in names]
        some = uuid.uuid4().hex[:6]
        if not calls and "final_answer" in names:
            return "", [("final_answer", {"answer": f"all booked {some}"})]
        return (f"step {turns} {some}" if calls else f"all booked {some}"), calls

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        text, calls = self._decide(body)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{uuid.uuid4().hex[:10]}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(told)},
                }
                for name, told in calls
            ]
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex[:10]}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "system_fingerprint": f"fp_{uuid.uuid4().hex[:6]}",
            "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }

    def _response(self, body: dict[str, Any]) -> dict[str, Any]:
        text, calls = self._decide(body)
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        output: list[dict[str, Any]] = [
            {
                "id": f"msg_{uuid.uuid4().hex[:10]}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
            }
        ]
        output[0]["content"] = [part]
        output += [
            {
                "id": f"fc_{uuid.uuid4().hex[:10]}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"call_{uuid.uuid4().hex[:10]}",
                "name": name,
                "arguments": json.dumps(told),
            }
            for name, told in calls
        ]
        details: dict[str, Any] = {"input_tokens_details": {"cached_tokens": 0}}
        details["output_tokens_details"] = {"reasoning_tokens": 0}
        return {
            "id": f"resp_{uuid.uuid4().hex[:10]}",
            "object": "response",
            "created_at": time.time(),
            "model": body["model"],
            "status": "completed",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "temperature": 1.0,
            "top_p": 1.0,
            "usage": {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120, **details},
        }


def _send(request: BaseHTTPRequestHandler, data: bytes, *, status: int = 200, kind: str = "application/json") -> None:
    try:
        request.send_response(status)
        request.send_header("content-type", kind)
        request.send_header("content-length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)
    except ConnectionError:
        request.close_connection = True  # anyone who asked was killed


def _stream(request: BaseHTTPRequestHandler, pieces: list[bytes], between: Callable[[int], bool | None]) -> None:
    """Send the pieces, and ask behind each whether to break off."""
    try:
        request.send_response(200)
        request.send_header("content-type", "text/event-stream")
        request.send_header("content-length", str(sum(map(len, pieces))))
        request.end_headers()
        for place, piece in enumerate(pieces, 1):
            request.wfile.write(piece)
            request.wfile.flush()
            if between(place):
                request.close_connection = True
                return
    except ConnectionError:
        request.close_connection = True  # anyone who asked was killed


def _line(data: Any) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _chunks(answer: dict[str, Any]) -> Iterator[bytes]:
    (choice,) = answer["choices"]
    message = choice["message"]
    about = {key: answer[key] for key in ("id", "created", "model", "system_fingerprint")}
    base = {**about, "object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return _line({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for begin in range(0, len(message["content"]), 6):
        yield chunk({"content": message["content"][begin : begin + 6]})
    for index, call in enumerate(message.get("tool_calls", [])):
        name = {"name": call["function"]["name"], "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": name}]})
        rest = {"arguments": call["function"]["arguments"]}
        yield chunk({"tool_calls": [{"index": index, "function": rest}]})
    yield chunk({}, choice["finish_reason"])
    yield _line({**base, "choices": [], "usage": answer["usage"]})
    yield b"data: [DONE]\n\n"


def _events(answer: dict[str, Any]) -> Iterator[bytes]:
    for place, item in enumerate(answer["output"]):
        if item["type"] == "message":
            text = {"type": "response.output_text.delta", "output_index": place, "content_index": 0}
            yield _line({**text, "item_id": item["id"], "delta": item["content"][0]["text"]})
        yield _line({"type": "response.output_item.done", "output_index": place, "item": item})
    yield _line({"type": "response.completed", "response": answer})
