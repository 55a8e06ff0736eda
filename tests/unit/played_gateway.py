"""A real HTTP server that plays the gateway for tests of the commands."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cadre.cli.main import group

PROBLEM = "application/problem+json"

Answer = tuple[int, str, Any]


class Gateway(ThreadingHTTPServer):
    """Answers by method and path, with its query or else without; anything else is a 404 problem."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Answer] = {}
        self.first: dict[str, list[Answer]] = {}
        """Answers for the first requests, one each."""
        self.asked: list[str] = []
        """Method, path and query of each request."""
        self.keys: list[str | None] = []
        """The Idempotency-Key of each POST."""
        self.posted: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def problem(self, request: str, status: int, detail: str) -> None:
        self.answers[request] = (status, PROBLEM, {"title": "no", "status": status, "detail": detail})

    def answer(self, request: str, content: Any) -> None:
        self.answers[request] = (200, "application/json", content)

    def events(self, request: str, *events: tuple[str, dict[str, Any]]) -> None:
        text = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
        self.answers[request] = (200, "text/event-stream", text)

    def answer_to(self, method: str, path: str) -> Answer:
        plain = f"{method} {path.partition('?')[0]}"
        if self.first.get(plain):
            return self.first[plain].pop(0)
        missing = (404, PROBLEM, {"detail": f"nothing at {path}"})
        return self.answers.get(f"{method} {path}", self.answers.get(plain, missing))


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_GET(self) -> None:
        self._answer("GET")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        self.server.posted.append(json.loads(self.rfile.read(length) or b"{}"))
        self.server.keys.append(self.headers.get("idempotency-key"))
        self._answer("POST")

    def _answer(self, method: str) -> None:
        self.server.asked.append(f"{method} {self.path}")
        status, kind, content = self.server.answer_to(method, self.path)
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        data = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """The test's output is not the place for an access log."""


@contextlib.contextmanager
def playing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """Inside, the commands of this process find the server."""
    with Gateway() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("CADRE_GATEWAY_URL", server.url)
        monkeypatch.delenv("CADRE_DEBUG", raising=False)
        yield server
        server.shutdown()
        thread.join()


def cadre(*words: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(group, words, input=stdin, prog_name="cadre")
