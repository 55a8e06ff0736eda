"""The results of a part of `make bench-scale`: one table, printed, and its values in build/scale-PART.json."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from bench.processes import machine

S = TypeVar("S")
BUILD = Path(__file__).parents[3] / "build"


class Row(NamedTuple):
    """One line of the table, a value for each column."""

    name: str
    unit: str
    digits: int


def say(what: str) -> None:
    """Reports on standard error how far a measurement is."""
    click.echo(f"bench-scale: {what}", err=True)


def measure_each(
    part: str, rows: Mapping[str, Row], columns: Mapping[str, S], measure: Callable[[S], Mapping[str, float]]
) -> None:
    """Measures column by column, then prints the table."""
    found: list[Mapping[str, float]] = []
    for name, size in columns.items():
        say(f"{part}: {name}")
        found.append(measure(size))
        keep(part, [*columns], found)
    show(part, rows, [*columns], found)


def keep(part: str, columns: Sequence[str], found: Sequence[Mapping[str, float]]) -> None:
    """Writes the values of the columns that were measured so far, and what they were measured on."""
    BUILD.mkdir(exist_ok=True)
    document = {"columns": dict(zip(columns, found, strict=False)), "machine": machine()}
    (BUILD / f"scale-{part.replace(' ', '-')}.json").write_text(json.dumps(document, indent=2) + "\n")


def show(part: str, rows: Mapping[str, Row], columns: Sequence[str], found: Sequence[Mapping[str, float]]) -> None:
    """Prints the table as Markdown."""
    click.echo(f"| {part} | {' | '.join(columns)} |\n|---{'|---:' * len(columns)}|")
    for key, (name, unit, digits) in rows.items():
        cells = " | ".join(f"{one[key]:,.{digits}f}" for one in found)
        click.echo(f"| {name}{unit and f', {unit}'} | {cells} |")
