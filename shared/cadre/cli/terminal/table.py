"""Aligned columns for terminals and pipes, and the cutting of text that others wrote."""

import shutil
import sys
from collections.abc import Sequence
from datetime import datetime

from cadre.cli.terminal.answer import printable
from cadre.views.words import brief


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text of a table, its columns as wide as their widest cell; on a terminal the last column is cut at the edge."""
    lines = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers) - 1)]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return "\n".join(_line(line, widths, edge) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], edge: int | None) -> str:
    head = "".join(f"{cell:<{width}}  " for cell, width in zip(cells, widths, strict=False))
    last = cells[-1]
    if edge is not None:
        last = brief(last, max(edge - len(head), 10))
    return printable((head + last).rstrip())


def moment(at: float) -> str:
    """A time in this machine's zone."""
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
