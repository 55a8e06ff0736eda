"""Asks for the study, and checks what became of its plan, and the report by the data.

Talks to the gateway in CADRE_GATEWAY_URL as any program would. Exits with 0 only if plan and report are right.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

GATEWAY = os.environ["CADRE_GATEWAY_URL"]
RAIN = Path(__file__).parent / "data" / "rain.csv"
PATIENCE_SECONDS = 90.0


def ask(method: str, path: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(
        GATEWAY + path, data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def expected() -> str:
    """The report, by the data alone."""
    total: dict[str, float] = defaultdict(float)
    with RAIN.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            total[row["station"]] += float(row["millimetres"])
    order = sorted(total, key=lambda station: -total[station])
    told = "".join(f"{station} {total[station]:.0f} mm, " for station in order)
    spread = total[order[0]] - total[order[-1]]
    return f"Rain of the year, the wettest first: {told}which differ by {spread:.0f} mm."


def main() -> None:
    task = "Compare a year of rain at bay, ridge, plain, harbour and forest."
    run = ask("POST", "/v1/runs", {"agent": "geographer", "task": task})["id"]
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := ask("GET", f"/v1/runs/{run}"))["ended_at"] and time.monotonic() < until:
        time.sleep(0.2)
    plan = ask("GET", f"/v1/runs/{run}/plan")
    steps = plan["state"]["steps"]
    for step in steps:
        print(f"{step['step']} {step['action']} {step['task']}: {step['state']}", file=sys.stderr)
    # Made once, and once more after the failure.
    right = (expected(), 8, {"done"}, "COMPLETED", 2)
    seen = (
        found.get("output"),
        len(steps),
        {step["state"] for step in steps},
        plan["state"]["state"],
        plan["version"],
    )
    if seen != right:
        sys.exit(f"study: expected {right}, found {seen}: {found.get('error')}")
    print(f"Eight steps, of which one was planned anew: {seen[0]}")


if __name__ == "__main__":
    main()
