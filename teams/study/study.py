"""Asks for the study, and checks what became of its plan, and the report by the data.

Talks to the gateway of CADRE_GATEWAY_URL through the client of `cadre`. Exits with 0 only if plan and report are right.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

from cadre import Client

RAIN = Path(__file__).parent / "data" / "rain.csv"
PATIENCE_SECONDS = 90.0


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
    with Client() as client:
        run = client.start("geographer", task)
        found, plan = run.wait(PATIENCE_SECONDS), run.plan()
    steps = plan.state["steps"]
    for step in steps:
        print(f"{step['step']} {step['action']} {step['task']}: {step['state']}", file=sys.stderr)
    # Made once, and once more after the failure.
    right = (expected(), 8, {"done"}, "COMPLETED", 2)
    seen = (
        found.output,
        len(steps),
        {step["state"] for step in steps},
        plan.state["state"],
        plan.version,
    )
    if seen != right:
        sys.exit(f"study: expected {right}, found {seen}: {found.error}")
    print(f"Eight steps, of which one was planned anew: {seen[0]}")


if __name__ == "__main__":
    main()
