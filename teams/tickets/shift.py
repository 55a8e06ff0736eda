"""A shift at the desk: the clerk settles the inbox, a person agrees to a large refund and adds a task to the queue.

Talks to the gateway in CADRE_GATEWAY_URL as any program would.
Exits with 0 only if the SQLite file is right by the data.
"""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

GATEWAY = os.environ["CADRE_GATEWAY_URL"]
HERE = Path(__file__).parent
SHOP = Path(os.environ.get("TICKETS_DB") or HERE / ".shop.sqlite")
NOTE = "Add a note to ticket T-2: the carrier owes us this parcel."
PATIENCE_SECONDS = 120.0


def ask(method: str, path: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json", "Cadre-User": "grace"}
    request = urllib.request.Request(GATEWAY + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def rows(name: str) -> list[dict[str, str]]:
    with (HERE / "data" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def expected() -> dict[str, tuple[str, float]]:
    """What the rules of the house make of each ticket."""
    stock = {row["article"]: int(row["left"]) for row in rows("stock")}
    found: dict[str, tuple[str, float]] = {}
    for ticket in rows("tickets"):
        text, paid = ticket["text"], float(ticket["paid"])
        if "broken" in text and stock[ticket["article"]]:
            stock[ticket["article"]] -= 1
            found[ticket["number"]] = ("replacement", 0.0)
        elif "broken" in text or "never came" in text:
            found[ticket["number"]] = ("refund", paid)
        else:
            found[ticket["number"]] = ("reply", 0.0)
    return found


def add_task(run: str) -> None:
    """A person adds a task; an edit of a queue that has changed meanwhile is refused, and made again."""
    for _ in range(20):
        queue = ask("GET", f"/v1/runs/{run}/queue")
        edit = {"version": queue["version"], "operations": [{"op": "add", "task": NOTE}], "by": "grace"}
        try:
            ask("PATCH", f"/v1/runs/{run}/queue", edit)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
        else:
            return
    sys.exit("shift: the queue changed all the time")


def work(run: str) -> dict[str, Any]:
    """Waits for the run; whatever waits for a person is looked at once, and agreed to if it is due."""
    added, until = False, time.monotonic() + PATIENCE_SECONDS
    due = expected()
    while time.monotonic() < until:
        for waiting in ask("GET", f"/v1/approvals?run={run}")["approvals"]:
            if not added:
                add_task(run)
                added = True
            wanted = waiting["arguments"]
            fair = due.get(wanted["ticket"]) == ("refund", wanted["amount"])
            print(f"grace {'agrees to' if fair else 'refuses'} {json.dumps(wanted)}", file=sys.stderr)
            word = {
                "decision": "approve" if fair else "reject",
                "feedback": "" if fair else "Not by the rules.",
            }
            ask("POST", f"/v1/approvals/{waiting['call']}", word)
        found: dict[str, Any] = ask("GET", f"/v1/runs/{run}")
        if found["ended_at"] is not None:
            return found
        time.sleep(0.2)
    sys.exit(f"shift: the run goes on and on: {ask('GET', f'/v1/runs/{run}')}")


def main() -> None:
    SHOP.unlink(missing_ok=True)
    run = ask("POST", "/v1/runs", {"agent": "clerk", "task": "Do today's inbox."})["id"]
    ended = work(run)
    with closing(sqlite3.connect(SHOP)) as shop:
        done = shop.execute("select ticket, kind, amount, text from actions order by ticket").fetchall()
    settled = {ticket: (kind, amount) for ticket, kind, amount, _ in done if kind != "note"}
    notes = [(ticket, text) for ticket, kind, _, text in done if kind == "note"]
    due = expected()
    if settled != due or len(done) != len(due) + 1 or notes[0][0] != "T-2" or "carrier" not in notes[0][1]:
        sys.exit(f"shift: expected {due} and a note, each once: {done}; the run: {ended}")
    answer = ended.get("output") or {}
    right = {"refunded": sum(amount for _, amount in due.values()), "settled": sorted(due)}
    if {**answer, "settled": sorted(answer.get("settled", []))} != right:
        sys.exit(f"shift: expected the answer {right}: {ended}")
    print(
        f"{len(due)} tickets are settled, each once, {right['refunded']:.2f} was paid back, and the note is there."
    )


if __name__ == "__main__":
    main()
