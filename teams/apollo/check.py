"""Checks an answer to the demo task: `python check.py FILE` (`-` reads standard input).

Works out every figure again from data/*.csv, with nothing but the standard library and none of the
team's tools. Prints a line for each figure; exits with 0 when all are right, with 1 when one is not.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
NUMBER = re.compile(r"(?<![\d.,])\d+(?:\.\d+)?(?![\d,]*\d)")
TOLERANCE = 0.051  # figures are given with one decimal
OPEN = "stays open: no statistician has computed it"


class Expected(NamedTuple):
    """What the tables say."""

    kilograms: dict[str, float]
    hours: dict[str, float]

    @property
    def richest(self) -> str:
        return max(self.kilograms, key=lambda flight: self.kilograms[flight])

    @property
    def fastest(self) -> str:
        return max(self.hours, key=self.rate)

    def rate(self, flight: str) -> float:
        return self.kilograms[flight] / self.hours[flight]

    @property
    def trend(self) -> tuple[float, float]:
        """Kilograms per further hour by least squares, and the correlation; by their definitions."""
        flights = list(self.kilograms)
        hour, mass = (sum(column[f] for f in flights) / len(flights) for column in (self.hours, self.kilograms))
        together = sum((self.hours[f] - hour) * (self.kilograms[f] - mass) for f in flights)
        hours = sum((self.hours[f] - hour) ** 2 for f in flights)
        masses = sum((self.kilograms[f] - mass) ** 2 for f in flights)
        return together / hours, together / (hours * masses) ** 0.5


def read_tables(folder: Path) -> Expected:
    """Hours come from the single moonwalks, not from the sums in missions.csv."""
    with (folder / "missions.csv").open(newline="", encoding="utf-8") as file:
        kilograms = {row["mission"]: float(row["samples_kg"]) for row in csv.DictReader(file) if row["samples_kg"]}
    seconds: Counter[str] = Counter()
    with (folder / "evas.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            hours, minutes, rest = map(int, row["duration"].split(":"))
            seconds[row["mission"]] += hours * 3600 + minutes * 60 + rest
    return Expected(kilograms, {flight: seconds[flight] / 3600 for flight in kilograms})


def check(answer: str, expected: Expected, documents: Path) -> list[tuple[bool, str]]:
    """A verdict and a line for each figure."""
    sentences = re.split(r"(?<=[.!?])\s+|\n+", answer)

    def stands(value: float, *names: str, within: float = TOLERANCE) -> bool:
        """Whether one sentence holds the figure, and the names with it."""
        return any(
            all(re.search(rf"{name}(?!\d)", sentence, re.IGNORECASE) for name in names)
            and any(abs(float(n) - value) < within for n in NUMBER.findall(sentence))
            for sentence in sentences
        )

    richest, fastest = expected.richest, expected.fastest
    total, hours = sum(expected.kilograms.values()), sum(expected.hours.values())
    return [
        (
            stands(expected.kilograms[richest], richest),
            f"most rock: {richest}, {expected.kilograms[richest]:.1f} kg",
        ),
        (
            stands(expected.rate(fastest), fastest, "hour"),
            f"per hour: {fastest}, {expected.rate(fastest):.1f} kg",
        ),
        (stands(total), f"rock of all landings: {total:.1f} kg"),
        (stands(hours, "hour"), f"moonwalks of all landings: {hours:.1f} hours"),
        check_find(answer, richest, documents),
        *check_trend(answer, expected, stands),
    ]


def check_trend(answer: str, expected: Expected, stands: Callable[..., bool]) -> list[tuple[bool, str]]:
    """Where code cannot be run there is no statistician, and the answer says so instead."""
    if OPEN in answer:
        return [(True, "trend: left open, for there was no statistician")]
    slope, correlation = expected.trend
    return [
        (stands(slope, "hour"), f"one more hour: {slope:.1f} kg"),
        (stands(correlation, "correlation", within=0.0051), f"correlation: {correlation:.2f}"),
    ]


def check_find(answer: str, flight: str, documents: Path) -> tuple[bool, str]:
    """The answer names a sample, by number, that the document on the flight names as well."""
    source = next(documents.glob(f"{flight.lower().replace(' ', '-')}-*.md"))
    known = set(re.findall(r"\b\d{5}\b", source.read_text("utf-8")))
    return bool(known & set(re.findall(r"\b\d{5}\b", answer))), f"a find of {flight}: one of {', '.join(sorted(known))}"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python check.py ANSWER_FILE   (- reads standard input)", file=sys.stderr)
        return 2
    try:
        answer = sys.stdin.read() if arguments[0] == "-" else Path(arguments[0]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        print(f"{arguments[0]}: cannot be read: {error}", file=sys.stderr)
        return 2
    verdicts = check(answer, read_tables(HERE / "data"), HERE / "documents")
    for is_right, line in verdicts:
        print(f"{'right  ' if is_right else 'MISSING'}  {line}")
    return 0 if all(is_right for is_right, _ in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
