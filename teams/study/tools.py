"""Tools of the study: they read a year of rain, and compare."""

# Annotations are left unquoted: the tool decorator reads them as types.

import csv
from pathlib import Path
from typing import TypedDict

from cadre import tool

RAIN = Path(__file__).parent / "data" / "rain.csv"
MOVED = {"harbour": "quay"}


class Measurement(TypedDict):
    station: str
    millimetres: float


@tool(read_only=True)
def measure(station: str) -> Measurement:
    """Returns how much rain fell at a station in the year.

    Args:
        station: Name of the station.
    """
    with RAIN.open(newline="", encoding="utf-8") as file:
        months = [float(row["millimetres"]) for row in csv.DictReader(file) if row["station"] == station]
    if len(months) != 12:
        moved = f": it was moved, and goes on as {MOVED[station]!r}" if station in MOVED else ""
        raise ValueError(f"there is no whole year of {station!r}{moved}")
    return Measurement(station=station, millimetres=sum(months))


@tool(read_only=True)
def rank(measurements: list[Measurement]) -> list[Measurement]:
    """Puts measurements into their order, the wettest first.

    Args:
        measurements: Of all stations.
    """
    return sorted(measurements, key=lambda one: -one["millimetres"])


@tool(read_only=True)
def spread(measurements: list[Measurement]) -> float:
    """Returns by how much the wettest and the driest station differ.

    Args:
        measurements: Of all stations.
    """
    found = [one["millimetres"] for one in measurements]
    return max(found) - min(found)
