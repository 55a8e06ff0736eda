"""A line between two services that a test can tap and hold: requests go through, answers wait while it is held."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2

from harness.patience import patience


class HttpLine:
    """Forwards HTTP to another address. Use it as a context manager."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.methods: list[str] = []
        """The methods of JSON-RPC that came through, else the paths of what was posted, in their order."""
        self._open = threading.Event()
        self._open.set()
        self._answered = threading.Semaphore(0)
        line = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                line._forward(self, b"")

            def do_POST(self) -> None:
                line._forward(self, self.rfile.read(int(self.headers["Content-Length"])))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> HttpLine:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        self._server.shutdown()
        self._server.server_close()

    def hold(self) -> None:
        """From now on answers to calls wait on the line."""
        self._answered = threading.Semaphore(0)
        self._open.clear()

    def release(self) -> None:
        """Lets go of the answers that wait, whether anybody is there to take them or not."""
        self._open.set()

    def wait_answered(self) -> None:
        """Until an answer waits on the line: its request was carried out."""
        assert self._answered.acquire(timeout=patience()), f"no answer came: {self.methods}"

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = dict(handler.headers.items())
        try:
            answer = httpx2.request(
                handler.command,
                f"{self.target}{handler.path}",
                headers=headers,
                content=body,
                timeout=patience(),
            )
            status, content = answer.status_code, answer.content
        except httpx2.HTTPError:
            status, content = 502, b""
        if body:
            self.methods.append(json.loads(body).get("method", handler.path))
        if body and not self._open.is_set():
            self._answered.release()
            self._open.wait()
        try:
            handler.send_response(status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)
        except OSError:
            pass  # anyone who has asked is gone
