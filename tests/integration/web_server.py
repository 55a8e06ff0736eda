"""An HTTP server whose pages are a test's, and which keeps what it was asked for."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from harness.patience import patience


class Asked(NamedTuple):
    path: str
    host: str


class Answer(NamedTuple):
    body: bytes = b""
    content_type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012
    until: threading.Event | None = None
    """The body's end is kept back until then."""


class WebServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str) -> None:
        super().__init__((address, 0), _Handler)
        self.address = address
        self.port: int = self.server_address[1]
        self.pages: dict[str, Answer | Callable[[str], Answer]] = {}
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    def answer(self, path: str) -> Answer:
        page = self.pages.get(path.partition("?")[0], Answer(b"nothing here", status=404))
        return page if isinstance(page, Answer) else page(path)


class _Handler(BaseHTTPRequestHandler):
    server: WebServer

    def do_GET(self) -> None:
        self.server.asked.append(Asked(self.path, self.headers.get("Host", "")))
        answer = self.server.answer(self.path)
        self.send_response(answer.status)
        if answer.content_type:
            self.send_header("Content-Type", answer.content_type)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            if answer.until is not None:
                self.wfile.flush()
                answer.until.wait(timeout=patience())
            self.wfile.write(answer.body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the reader has had enough

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def web_server(address: str = "127.0.0.1") -> Iterator[WebServer]:
    server = WebServer(address)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
