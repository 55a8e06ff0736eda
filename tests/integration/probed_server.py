"""A model endpoint whose abilities a test chooses: it answers as servers do that have them, or lack them."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harness.patience import patience

Body = dict[str, Any]


class Refused(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ProbedServer(ThreadingHTTPServer):
    """`answer` takes a request's body and returns the message of the reply, with `finish_reason` next to it."""

    daemon_threads = True

    def __init__(self, answer: Callable[[Body], Body]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.entry: Body = {"id": "m-1", "object": "model"}
        self.usage = True
        self.silent = threading.Event()
        """While it is set, chat completions are not answered."""
        self.asked: list[Body] = []
        self.open = self.most_open = 0
        """Requests that are being answered, now and at most; one whose answer goes out is none: its client may have
        read all of it, and ask again, before this thread is done."""
        self.counting = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: ProbedServer
    _is_open = False

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [self.server.entry]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.counting:
            self.server.asked.append(body)
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        self._is_open = True
        try:
            self._answer(body)
        except Refused as refusal:
            self._send(refusal.status, {"error": {"message": str(refusal)}})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has had enough
        finally:
            self._goes_out()

    def _goes_out(self) -> None:
        if self._is_open:
            self._is_open = False
            with self.server.counting:
                self.server.open -= 1

    def _answer(self, body: Body) -> None:
        if self.path.endswith("/embeddings"):
            vector = {"object": "embedding", "index": 0, "embedding": [0.5, 0.5, 0.0]}
            self._send(200, {"object": "list", "model": body["model"], "data": [vector], "usage": {}})
            return
        if self.server.silent.is_set():
            threading.Event().wait(patience())
        if self.path.endswith("/responses"):
            content = self.server.answer({**body, "messages": body["input"]})["content"]
            part = {"type": "output_text", "text": content, "annotations": []}
            said = {"type": "message", "role": "assistant", "content": [part]}
            used = {"input_tokens": 9, "output_tokens": 5}
            self._send(200, {"object": "response", "status": "completed", "output": [said], "usage": used})
            return
        message = dict(self.server.answer(body))
        finish = message.pop("finish_reason", "tool_calls" if message.get("tool_calls") else "stop")
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14} if self.server.usage else None
        about = {"id": "c", "created": 1, "model": "m-1"}
        if not body.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
            self._send(200, {**about, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self._goes_out()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for delta in _pieces(message):
            self._chunk(about, delta, None)
        self._chunk(about, {}, finish)
        if usage is not None:
            self._event({**about, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunk(self, about: Body, delta: Body, finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._event({**about, "object": "chat.completion.chunk", "choices": [choice]})

    def _event(self, data: Body) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _send(self, status: int, data: Body) -> None:
        text = json.dumps(data).encode()
        self._goes_out()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _pieces(message: Body) -> Iterator[Body]:
    content = message.get("content") or ""
    yield {"role": "assistant", **{key: value for key, value in message.items() if key != "content"}}
    for start in range(0, len(content), 4):
        yield {"content": content[start : start + 4]}


@contextmanager
def probed_server(answer: Callable[[Body], Body]) -> Iterator[ProbedServer]:
    server = ProbedServer(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def call(name: str, arguments: str, index: int = 0) -> Body:
    return {
        "index": index,
        "id": f"c{index}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def able(body: Body) -> Body:
    """A model that can do all that is asked."""
    kind = (body.get("response_format") or {}).get("type")
    if kind is not None:
        return {"content": '{"town": "Oslo", "people": 700000}'}
    content = body["messages"][-1]["content"]
    if isinstance(content, list):
        return {"content": "Red."}
    if body.get("tools"):
        many = 2 if "once for each" in content else 1
        return {"tool_calls": [call("get_weather", json.dumps({"city": c}), i) for i, c in enumerate("LO"[:many])]}
    if "max_completion_tokens" in body:
        return {"content": "1, 2, 3, 4", "finish_reason": "length"}
    if "reasoning_effort" in body:
        return {"content": "No: 7 times 13.", "reasoning_content": "91 is 7 times 13."}
    return {"content": ", ".join(map(str, range(1, 41)))}


def weak(body: Body) -> Body:
    """A small model behind llama.cpp: calls as text, no end where calls are required, schemas held to, no eyes."""
    if body.get("tools"):
        if body["tool_choice"] == "required":
            return {"content": "weather " * 50, "finish_reason": "length"}
        return {"content": '{"name": "get_weather", "arguments": {"city": "Lima"}}'}
    if isinstance(body["messages"][-1]["content"], list):
        raise Refused(500, "image input is not supported")
    if "reasoning_effort" in body:
        raise Refused(400, "Unsupported parameter: 'reasoning_effort'")
    return able(body)
