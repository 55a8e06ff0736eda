"""The board gives three offers to the comparer, and looks over what it wrote.

Talks to the gateway of CADRE_GATEWAY_URL through the client of `cadre`.
Exits with 0 only if answer and file are right by the documents.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from cadre import Client

DOCUMENTS = Path(__file__).parent / "documents"
TASK = "Compare the offers for the heating of the village hall."


def figure(text: str, pattern: str) -> float:
    match = re.search(pattern, " ".join(text.split()))
    if match is None:
        sys.exit(f"compare: no {pattern} in {text[:60]!r}")
    return float(match[1].replace(",", ""))


def expected() -> tuple[dict[str, float], list[str]]:
    """What each maker's pump costs, by the documents, and the makers that cannot do what is demanded."""
    demands = (DOCUMENTS / "demands.md").read_text("utf-8")
    years, per_kwh = figure(demands, r"over (\d+) years"), figure(demands, r"at ([\d.]+) euros per kWh")
    weeks, warranty = figure(demands, r"within (\d+) weeks"), figure(demands, r"at least (\d+) years")
    totals: dict[str, float] = {}
    refused: list[str] = []
    for file in sorted(DOCUMENTS.glob("offer-*.md")):
        text = file.read_text("utf-8")
        maker = text[2 : text.index(":")]
        yearly = figure(text, r"([\d,]+) kWh") * per_kwh + figure(text, r"yearly upkeep is ([\d,]+)")
        totals[maker] = round(figure(text, r"price is ([\d,]+) euros") + years * yearly, 2)
        if figure(text, r"need (\d+) weeks") > weeks or figure(text, r"warranty is (\d+) years") < warranty:
            refused.append(maker)
    return totals, refused


def main() -> None:
    with Client() as client:
        run = client.start("comparer", TASK, files=sorted(DOCUMENTS.glob("*.md")))
        answer, (totals, refused) = run.result(timeout=150), expected()
        best = min((maker for maker in totals if maker not in refused), key=lambda maker: totals[maker])
        if answer != {"recommended": best, "total": totals[best], "refused": refused}:
            sys.exit(f"compare: expected {best} of {totals}, without {refused}: {answer}")
        written = run.read_file("comparison.md").decode()
    print(written, file=sys.stderr)
    plain = written.replace(",", "")
    missing = [maker for maker, total in totals.items() if not re.search(rf"\|[^\n]*{maker}[^\n]*{total:.0f}", plain)]
    if missing:
        sys.exit(f"compare: the table lacks {missing}, or what they cost: {totals}")
    print(f"{best} is recommended at {totals[best]:.2f} euros, and comparison.md says why.")


if __name__ == "__main__":
    main()
