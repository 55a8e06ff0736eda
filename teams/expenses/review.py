"""A person looks over the payments that the auditor proposes, and corrects one, before anything is paid.

Talks to the gateway of CADRE_GATEWAY_URL through the client of `cadre`. Exits with 0 only if what was paid is right.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

from cadre import Client
from cadre.client import Approval, RunHandle

RECEIPTS = Path(__file__).parent / "data" / "receipts.csv"
MOST = {"train": 1e9, "taxi": 1e9, "hotel": 120.0, "dinner": 40.0}
"""What the policy lets be paid, by kind; nothing for any other."""

PATIENCE_SECONDS = 90.0


def due(report: str) -> dict[str, float]:
    """What each receipt of the report is worth by the policy."""
    with RECEIPTS.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["report"] == report]
    return {row["receipt"]: min(float(row["amount"]), MOST.get(row["kind"], 0.0)) for row in rows}


def proposal_of(run: RunHandle) -> Approval:
    """The proposal that waits for a person."""
    for event in run.stream():
        if event.type == "approval.requested":
            (waiting,) = run.approvals()
            return waiting
    sys.exit(f"review: nothing was proposed: {run.detail()}")


def review(proposal: Approval, worth: dict[str, float]) -> list[dict[str, Any]]:
    """The edits of a careful person: nobody is paid more than the policy lets them."""
    edits = []
    for number, call in enumerate(proposal.arguments["calls"], start=1):
        receipt, amount = call["arguments"]["receipt"], call["arguments"]["amount"]
        if worth[receipt] == 0:
            edits.append({"call": number, "drop": True})
        elif amount > worth[receipt]:
            edits.append({"call": number, "arguments": {"amount": worth[receipt]}})
    return edits


def main() -> None:
    worth = due("oslo")
    with Client() as client:
        run = client.start("auditor", "Check the expense report oslo.")
        proposal = proposal_of(run)
        edits = review(proposal, worth)
        print(f"grace changes {json.dumps(edits)} of {json.dumps(proposal.arguments['calls'])}", file=sys.stderr)
        why = "The policy bounds a night's hotel."
        for _ in range(2):  # said twice, it counts once
            (decided,) = run.approve(proposal.call, edits=edits, feedback=why, by="grace")
        answer = run.wait(PATIENCE_SECONDS).output
    right = {"paid": sum(worth.values()), "refused": ["R-4"]}
    if answer != right or len(edits) != 1 or decided.verdict != "corrected":
        sys.exit(f"review: expected {right}, one edit and a corrected proposal: {answer}, {edits}, {decided}")
    print(f"The auditor proposed, a person corrected one payment, and {answer['paid']:.2f} was paid: what is due.")


if __name__ == "__main__":
    main()
