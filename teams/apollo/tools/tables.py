"""Tools that calculate with the CSV files of a folder: look at the columns, filter, sort, sum, compare."""

# Annotations are left unquoted: the tool decorator reads them as types.

import csv
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypedDict

from cadre import tool

FOLDER = Path(__file__).parent.parent / "data"

Function = Literal["sum", "mean", "min", "max", "count"]
Row = dict[str, str]
Conditions = dict[str, str]
FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": lambda values: round(sum(values), 6),
    "mean": lambda values: round(statistics.fmean(values), 6),
    "min": min,
    "max": max,
    "count": len,
}


class Table(TypedDict):
    table: str
    rows: int
    columns: list[str]


class Column(TypedDict):
    column: str
    kind: Literal["number", "duration", "text"]
    filled: int
    example: str


class Group(TypedDict):
    group: str
    value: float
    rows: int


class Aggregate(TypedDict):
    table: str
    column: str
    function: str
    unit: str
    value: float
    rows: int
    groups: list[Group]


class Ratio(TypedDict):
    rank: int
    label: str
    ratio: float
    numerator: float
    denominator: float


class Ranking(TypedDict):
    table: str
    ratios: list[Ratio]
    left_out: list[str]


@tool(read_only=True)
def list_tables() -> list[Table]:
    """Names the tables there are, with their columns and numbers of rows."""
    return [
        Table(table=path.stem, rows=len(read(path.stem)), columns=list(read(path.stem)[0]))
        for path in sorted(FOLDER.glob("*.csv"))
    ]


@tool(read_only=True)
def table_columns(table: str) -> list[Column]:
    """Describes the columns of a table: what kind of value each holds, in how many rows, and an example.

    Args:
        table: Name of the table, as list_tables gives it.
    """
    rows = read(table)
    return [describe_column(rows, name) for name in rows[0]]


@tool(read_only=True)
def select_rows(
    table: str,
    columns: list[str],
    where: Conditions | None = None,
    sort_by: str = "",
    descending: bool = False,
    limit: int = 20,
) -> list[Row]:
    """Reads rows of a table.

    Args:
        table: Name of the table, as list_tables gives it.
        columns: Columns to read.
        where: Only rows that hold these values, by column, such as {"lunar_landing": "yes"}.
        sort_by: Column to sort by, numbers by value; rows without one come last. As in the file when left out.
        descending: Begin with the largest.
        limit: Rows to return at most.
    """
    rows = select(table, where)
    for name in columns:
        need_column(table, rows, name)
    if sort_by:
        need_column(table, read(table), sort_by)
        rows = sort(rows, sort_by, descending)
    return [{name: row[name] for name in columns} for row in rows[: max(limit, 0)]]


@tool(read_only=True)
def aggregate(
    table: str, function: Function, column: str, where: Conditions | None = None, group_by: str = ""
) -> Aggregate:
    """Calculates one number from a column, over all rows and for each group. Durations count in minutes.

    Args:
        table: Name of the table, as list_tables gives it.
        function: What to calculate; empty fields are left out.
        column: Column with numbers or durations (h:mm:ss).
        where: Only rows that hold these values, by column, such as {"lunar_landing": "yes"}.
        group_by: Calculate for each value of this column as well.
    """
    rows = select(table, where)
    values = numbers(table, rows, column)
    if not values:
        raise ValueError(f"no row of {table} that meets {where or {}} has a value in {column!r}")
    groups: dict[str, list[float]] = {}
    if group_by:
        need_column(table, rows, group_by)
        for index, value in values.items():
            groups.setdefault(rows[index][group_by], []).append(value)
    apply = FUNCTIONS[function]
    return Aggregate(
        table=table,
        column=column,
        function=function,
        unit="minutes" if is_duration(rows, column) and function != "count" else "",
        value=apply(list(values.values())),
        rows=len(values),
        groups=[Group(group=g, value=apply(v), rows=len(v)) for g, v in groups.items()],
    )


@tool(read_only=True)
def rank_by_ratio(
    table: str,
    numerator: str,
    denominator: str,
    label: str,
    scale: float = 1.0,
    where: Conditions | None = None,
) -> Ranking:
    """Divides one column by another, row by row, and ranks the rows by the result, the largest first.

    Args:
        table: Name of the table, as list_tables gives it.
        numerator: Column to divide.
        denominator: Column to divide by. Rows without a value, or with zero, are left out and named.
        label: Column that names the rows.
        scale: Factor on the ratio: 60 turns "per minute" into "per hour".
        where: Only rows that hold these values, by column, such as {"lunar_landing": "yes"}.
    """
    rows = select(table, where)
    need_column(table, rows, label)
    above, below = numbers(table, rows, numerator), numbers(table, rows, denominator)
    usable = [index for index in above if below.get(index)]
    usable.sort(key=lambda index: above[index] / below[index], reverse=scale >= 0)
    return Ranking(
        table=table,
        ratios=[
            Ratio(
                rank=rank,
                label=rows[index][label],
                ratio=round(above[index] / below[index] * scale, 4),
                numerator=above[index],
                denominator=below[index],
            )
            for rank, index in enumerate(usable, 1)
        ],
        left_out=[row[label] for index, row in enumerate(rows) if index not in usable],
    )


# --- what the tools are made of


def read(table: str) -> list[Row]:
    """All rows of a table, at least one. Raises ValueError naming the tables there are."""
    tables = sorted(path.stem for path in FOLDER.glob("*.csv"))
    if table not in tables:
        raise ValueError(f"no table {table!r}; tables are {', '.join(tables)}")
    with (FOLDER / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError(f"table {table!r} has no rows")
    return rows


def select(table: str, where: Conditions | None) -> list[Row]:
    """The rows that hold the values asked for, at least one. Raises ValueError when there is none."""
    rows = read(table)
    for name, value in (where or {}).items():
        need_column(table, rows, name)
        found = sorted({row[name] for row in rows})
        rows = [row for row in rows if row[name].casefold() == str(value).casefold()]
        if not rows:
            raise ValueError(f"no row of {table} has {value!r} in {name!r}; values are {', '.join(found)}")
    return rows


def need_column(table: str, rows: list[Row], name: str) -> None:
    if name not in rows[0]:
        raise ValueError(f"no column {name!r} in {table}; columns are {', '.join(rows[0])}")


def numbers(table: str, rows: list[Row], column: str) -> dict[int, float]:
    """The values of a column by row, without the empty ones; durations in minutes."""
    need_column(table, rows, column)
    try:
        return {index: to_number(row[column]) for index, row in enumerate(rows) if row[column]}
    except ValueError as error:
        raise ValueError(f"column {column!r} of {table} cannot be calculated with: {error}") from error


def to_number(text: str) -> float:
    if ":" not in text:
        return float(text)
    hours, minutes, seconds = (int(part) for part in text.split(":"))
    return hours * 60 + minutes + seconds / 60


def is_duration(rows: Iterable[Row], column: str) -> bool:
    return any(":" in row[column] for row in rows)


def describe_column(rows: list[Row], name: str) -> Column:
    filled = [row[name] for row in rows if row[name]]
    try:
        for text in filled:
            to_number(text)
        kind: Literal["number", "duration", "text"] = "duration" if is_duration(rows, name) else "number"
    except ValueError:
        kind = "text"
    return Column(column=name, kind=kind, filled=len(filled), example=filled[0] if filled else "")


def sort(rows: list[Row], column: str, descending: bool) -> list[Row]:
    """Rows by the value of a column: numbers by size, texts by letters, empty fields last."""
    filled = [row for row in rows if row[column]]
    empty = [row for row in rows if not row[column]]
    if describe_column(rows, column)["kind"] == "text":
        return sorted(filled, key=lambda row: row[column].casefold(), reverse=descending) + empty
    return sorted(filled, key=lambda row: to_number(row[column]), reverse=descending) + empty
