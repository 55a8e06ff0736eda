"""A morning in the purchasing department: four purchases, one of which fails when it is ordered.

Talks to the gateway of CADRE_GATEWAY_URL through the client of `cadre`.
Exits with 0 only if the answers and the ledger are right.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from cadre import Client
from cadre.client import RunDetail, RunHandle

LEDGER = Path(os.environ.get("PURCHASES_DB") or Path(__file__).parent / ".ledger.sqlite")
PATIENCE_SECONDS = 90.0


def ended(run: RunHandle) -> RunDetail:
    """The run at its end; whatever waits for a person is agreed to."""
    for event in run.stream():
        if event.type == "approval.requested":
            print(f"grace agrees: {event.data['event']['arguments']}", file=sys.stderr)
            run.approve(event.data["event"]["call"], by="grace")
    return run.wait(PATIENCE_SECONDS)


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        sys.exit(f"morning: {what}: expected {wanted}, found {found}")


def main() -> None:
    LEDGER.unlink(missing_ok=True)
    with Client() as client:
        expect("schedules", [one.name for one in client.schedules()], ["weekly-coffee"])
        started = {"P-1": client.run_schedule("weekly-coffee")}
        started |= {number: client.start("buyer", f"Purchase {number}.") for number in ("P-2", "P-3", "P-4")}
        runs = {number: ended(run) for number, run in started.items()}
    for number, run in runs.items():
        print(f"{number}: {run.state}: {run.error.message if run.error else run.output}", file=sys.stderr)

    expect("coffee", runs["P-1"].output, {"ordered": "coffee", "total": 84.0, "days": 2})
    expect("projector", runs["P-2"].output, {"ordered": "projector", "total": 640.0, "days": 6})
    why = runs["P-3"].error.message if runs["P-3"].error else ""
    expect("chairs", (runs["P-3"].state, "not made any more" in why), ("error", True))
    expect("fishing rod", runs["P-4"].output, "declined: P-4")
    with closing(sqlite3.connect(LEDGER)) as book:
        reserved = book.execute("select request, amount from reservations order by request").fetchall()
        orders = book.execute("select request, pieces from orders order by request").fetchall()
        mails = book.execute("select request, name, text from mails order by rowid").fetchall()
    expect("reservations", reserved, [("P-1", 84.0), ("P-2", 640.0)])
    expect("orders", orders, [("P-1", 12), ("P-2", 1)])
    expect(
        "who has mail",
        sorted(mail[:2] for mail in mails),
        [("P-1", "Ida"), ("P-2", "Jon"), ("P-3", "Kim"), ("P-3", "Kim")],
    )
    last = [text for request, _, text in mails if request == "P-3"][-1]
    expect("the last mail to Kim", "cannot be had after all" in last, True)
    print("Two purchases are ordered, one was declined, and of the one that failed nothing is left but an apology.")


if __name__ == "__main__":
    main()
