"""A receiver of traces that takes everything and keeps nothing, as a process: `python -m bench.sink PORT`."""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    # It stands for another machine.
    os.nice(19)
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler)
    print("ready", flush=True)
    server.serve_forever()
