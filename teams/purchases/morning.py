"""A morning in the purchasing department: four purchases, one of which fails when it is ordered.

Talks to the gateway in CADRE_GATEWAY_URL as any program would.
Exits with 0 only if the answers and the ledger are right.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

GATEWAY = os.environ["CADRE_GATEWAY_URL"]
LEDGER = Path(os.environ.get("PURCHASES_DB") or Path(__file__).parent / ".ledger.sqlite")
PATIENCE_SECONDS = 90.0


def ask(method: str, path: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json", "Cadre-User": "grace"}
    request = urllib.request.Request(GATEWAY + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def start(number: str) -> str:
    run: str = ask("POST", "/v1/runs", {"agent": "buyer", "task": f"Purchase {number}."})["id"]
    return run


def ended(runs: dict[str, str]) -> dict[str, Any]:
    """Every run at its end; whatever waits for a person is agreed to."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        for waiting in ask("GET", "/v1/approvals")["approvals"]:
            print(f"grace agrees: {waiting['arguments']}", file=sys.stderr)
            ask("POST", f"/v1/approvals/{waiting['call']}", {"decision": "approve"})
        found = {number: ask("GET", f"/v1/runs/{run}") for number, run in runs.items()}
        if all(run["ended_at"] is not None for run in found.values()):
            return found
        time.sleep(0.2)
    sys.exit(f"morning: they go on and on: {found}")


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        sys.exit(f"morning: {what}: expected {wanted}, found {found}")


def main() -> None:
    LEDGER.unlink(missing_ok=True)
    names = [one["name"] for one in ask("GET", "/v1/schedules")["schedules"]]
    expect("schedules", names, ["weekly-coffee"])
    coffee = ask("POST", "/v1/schedules/weekly-coffee/run")["id"]
    runs = ended({"P-1": coffee, **{number: start(number) for number in ("P-2", "P-3", "P-4")}})
    for number, run in runs.items():
        print(
            f"{number}: {run['state']}: {run['error']['message'] if run['error'] else run['output']}",
            file=sys.stderr,
        )

    expect("coffee", runs["P-1"]["output"], {"ordered": "coffee", "total": 84.0, "days": 2})
    expect("projector", runs["P-2"]["output"], {"ordered": "projector", "total": 640.0, "days": 6})
    expect(
        "chairs",
        (runs["P-3"]["state"], "not made any more" in runs["P-3"]["error"]["message"]),
        ("error", True),
    )
    expect("fishing rod", runs["P-4"]["output"], "declined: P-4")
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
    print(
        "Two purchases are ordered, one was declined, and of the one that failed nothing is left but an apology."
    )


if __name__ == "__main__":
    main()
