"""A shift at the desk: the clerk settles the inbox, a person agrees to a large refund and adds a task to the queue.

Talks to the gateway of CADRE_GATEWAY_URL through the client of `cadre`.
Exits with 0 only if the SQLite file is right by the data.
"""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from cadre import Client
from cadre.client import Conflict, RunDetail, RunHandle

HERE = Path(__file__).parent
SHOP = Path(os.environ.get("TICKETS_DB") or HERE / ".shop.sqlite")
NOTE = "Add a note to ticket T-2: the carrier owes us this parcel."
PATIENCE_SECONDS = 120.0


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


def add_task(run: RunHandle) -> None:
    """A person adds a task; an edit of a queue that has changed meanwhile is refused, and made again."""
    for _ in range(20):
        try:
            run.edit(run.queue(), [{"op": "add", "task": NOTE}], by="grace")
        except Conflict:
            continue
        return
    sys.exit("shift: the queue changed all the time")


def work(run: RunHandle) -> RunDetail:
    """Waits for the run; whatever waits for a person is looked at once, and agreed to if it is due."""
    added, due = False, expected()
    for event in run.stream():
        if event.type != "approval.requested":
            continue
        if not added:
            add_task(run)
            added = True
        call, wanted = event.data["event"]["call"], event.data["event"]["arguments"]
        fair = due.get(wanted["ticket"]) == ("refund", wanted["amount"])
        print(f"grace {'agrees to' if fair else 'refuses'} {json.dumps(wanted)}", file=sys.stderr)
        if fair:
            run.approve(call, by="grace")
        else:
            run.reject(call, feedback="Not by the rules.", by="grace")
    return run.wait(PATIENCE_SECONDS)


def main() -> None:
    SHOP.unlink(missing_ok=True)
    with Client() as client:
        ended = work(client.start("clerk", "Do today's inbox."))
    with closing(sqlite3.connect(SHOP)) as shop:
        done = shop.execute("select ticket, kind, amount, text from actions order by ticket").fetchall()
    settled = {ticket: (kind, amount) for ticket, kind, amount, _ in done if kind != "note"}
    notes = [(ticket, text) for ticket, kind, _, text in done if kind == "note"]
    due = expected()
    if settled != due or len(done) != len(due) + 1 or notes[0][0] != "T-2" or "carrier" not in notes[0][1]:
        sys.exit(f"shift: expected {due} and a note, each once: {done}; the run: {ended}")
    answer = ended.output or {}
    right = {"refunded": sum(amount for _, amount in due.values()), "settled": sorted(due)}
    if {**answer, "settled": sorted(answer.get("settled", []))} != right:
        sys.exit(f"shift: expected the answer {right}: {ended}")
    print(f"{len(due)} tickets are settled, each once, {right['refunded']:.2f} was paid back, and the note is there.")


if __name__ == "__main__":
    main()
