"""A server that counts the lines it is sent, and answers how often each came."""

import json
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COUNTS: Counter[str] = Counter()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        COUNTS[self.rfile.read(int(self.headers["Content-Length"])).decode()] += 1
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(json.dumps(COUNTS).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    request_queue_size = 512  # all runs go on at the same moment


if __name__ == "__main__":
    Server(("0.0.0.0", 9000), Handler).serve_forever()
