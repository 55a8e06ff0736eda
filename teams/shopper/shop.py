"""Serves the pages of the shop on this machine, has them compared, and checks the answer by the pages themselves.

Talks to the gateway in CADRE_GATEWAY_URL as any program would. Exits with 0 only if answer and data sheet are right.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

GATEWAY = os.environ["CADRE_GATEWAY_URL"]
PAGES = Path(__file__).parent / "pages"
PATIENCE_SECONDS = 120.0


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def ask(method: str, path: str, body: object = None) -> bytes:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(
        GATEWAY + path, data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: bytes = answer.read()
    return found


def cheapest() -> tuple[str, float]:
    """The cheapest lamp in stock, by the files."""
    found = []
    for page in PAGES.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        price = re.search(r"Price: ([\d.]+)", text)
        if price and "In stock" in text:
            found.append((float(price[1]), page.stem.capitalize()))
    price_of_it, name = min(found)
    return name, price_of_it


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(PAGES)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shop = f"http://127.0.0.1:{server.server_address[1]}/"
    task = f"Which lamp in stock is the cheapest at {shop} ? Fetch its data sheet."
    run = json.loads(ask("POST", "/v1/runs", {"agent": "shopper", "task": task}))["id"]
    until = time.monotonic() + PATIENCE_SECONDS
    found: dict[str, Any] = {}
    while not found.get("ended_at") and time.monotonic() < until:
        time.sleep(0.2)
        found = json.loads(ask("GET", f"/v1/runs/{run}"))
    name, price = cheapest()
    right = {"name": name, "price": price, "sheet": f"downloads/{name.lower()}.txt"}
    if found.get("output") != right:
        sys.exit(f"shop: expected {right}, found {found.get('output')}: {found.get('error')}")
    sheet = ask("GET", f"/v1/runs/{run}/files/{right['sheet']}").decode().strip()
    if sheet != (PAGES / f"{name.lower()}.txt").read_text(encoding="utf-8").strip():
        sys.exit(f"shop: the data sheet is not that of {name}: {sheet}")
    print(f"{name} for {price:.2f} euros is the cheapest in stock; its data sheet says: {sheet}")


if __name__ == "__main__":
    main()
