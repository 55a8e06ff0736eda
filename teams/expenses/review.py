"""A person looks over the payments that the auditor proposes, and corrects one, before anything is paid.

Talks to the gateway in CADRE_GATEWAY_URL as any program would. Exits with 0 only if what was paid is right by the data.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

GATEWAY = os.environ["CADRE_GATEWAY_URL"]
RECEIPTS = Path(__file__).parent / "data" / "receipts.csv"
MOST = {"train": 1e9, "taxi": 1e9, "hotel": 120.0, "dinner": 40.0}
"""What the policy lets be paid, by kind; nothing for any other."""

PATIENCE_SECONDS = 90.0


def ask(method: str, path: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json", "Cadre-User": "grace"}
    request = urllib.request.Request(GATEWAY + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def due(report: str) -> dict[str, float]:
    """What each receipt of the report is worth by the policy."""
    with RECEIPTS.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["report"] == report]
    return {row["receipt"]: min(float(row["amount"]), MOST.get(row["kind"], 0.0)) for row in rows}


def proposal_of(run: str) -> dict[str, Any]:
    """The proposal that waits for a person."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        for waiting in ask("GET", f"/v1/approvals?run={run}")["approvals"]:
            found: dict[str, Any] = waiting
            return found
        time.sleep(0.2)
    sys.exit(f"review: nothing was proposed: {ask('GET', f'/v1/runs/{run}')}")


def review(proposal: dict[str, Any], worth: dict[str, float]) -> list[dict[str, Any]]:
    """The edits of a careful person: nobody is paid more than the policy lets them."""
    edits = []
    for number, call in enumerate(proposal["arguments"]["calls"], start=1):
        receipt, amount = call["arguments"]["receipt"], call["arguments"]["amount"]
        if worth[receipt] == 0:
            edits.append({"call": number, "drop": True})
        elif amount > worth[receipt]:
            edits.append({"call": number, "arguments": {"amount": worth[receipt]}})
    return edits


def main() -> None:
    worth = due("oslo")
    run = ask("POST", "/v1/runs", {"agent": "auditor", "task": "Check the expense report oslo."})["id"]
    proposal = proposal_of(run)
    edits = review(proposal, worth)
    print(
        f"grace changes {json.dumps(edits)} of {json.dumps(proposal['arguments']['calls'])}", file=sys.stderr
    )
    word = {"decision": "approve", "edits": edits, "feedback": "The policy bounds a night's hotel."}
    for _ in range(2):  # said twice, it counts once
        decided = ask("POST", f"/v1/approvals/{proposal['call']}", word)
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := ask("GET", f"/v1/runs/{run}"))["ended_at"] and time.monotonic() < until:
        time.sleep(0.2)
    answer, right = found.get("output"), {"paid": sum(worth.values()), "refused": ["R-4"]}
    if answer != right or len(edits) != 1 or decided["verdict"] != "corrected":
        sys.exit(f"review: expected {right}, one edit and a corrected proposal: {answer}, {edits}, {decided}")
    print(
        f"The auditor proposed, a person corrected one payment, and {answer['paid']:.2f} was paid: what is due."
    )


if __name__ == "__main__":
    main()
