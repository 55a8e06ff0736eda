"""Serves the pages of the shop on this machine, has them compared, and checks the answer by the pages themselves.

Talks to the gateway of CADRE_GATEWAY_URL through the client of `cadre`. Exits with 0 only if the answer is right.
"""

from __future__ import annotations

import re
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cadre import Client

PAGES = Path(__file__).parent / "pages"
PATIENCE_SECONDS = 120.0


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, *_: object) -> None:
        """Says nothing."""


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
    name, price = cheapest()
    right = {"name": name, "price": price, "sheet": f"downloads/{name.lower()}.txt"}
    with Client() as client:
        run = client.start("shopper", task)
        found = run.wait(PATIENCE_SECONDS)
        if found.output != right:
            sys.exit(f"shop: expected {right}, found {found.output}: {found.error}")
        sheet = run.read_file(str(right["sheet"])).decode().strip()
    if sheet != (PAGES / f"{name.lower()}.txt").read_text(encoding="utf-8").strip():
        sys.exit(f"shop: the data sheet is not that of {name}: {sheet}")
    print(f"{name} for {price:.2f} euros is the cheapest in stock; its data sheet says: {sheet}")


if __name__ == "__main__":
    main()
