"""Aligned columns for terminals and pipes, and the cutting of text that others wrote."""

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cadre.cli.terminal.answer import printable


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


def brief(value: Any, limit: int) -> str:
    """One printable line of at most `limit` characters; a value that is no text is written as JSON.

    Models and tools wrote it: control characters are replaced, so it cannot move the cursor.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    head = text[: limit * 4]
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(head.split()))
    return line if len(line) <= limit and len(head) == len(text) else line[: limit - 1].rstrip() + "…"


def call_text(name: str, arguments: Any, limit: int = 100) -> str:
    """A call on one line: refund(amount=500, note="broken")."""
    if not isinstance(arguments, dict):
        return brief(f"{name}({arguments})", limit)
    pairs = ", ".join(
        f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in arguments.items()
    )
    return brief(f"{name}({pairs})", limit)


def moment(at: float) -> str:
    """A time in this machine's zone."""
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")


def number(count: int) -> str:
    """A count in few characters: 950, 1.2k, 3.4M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def seconds(value: float) -> str:
    """A duration in few characters: 40ms, 0.4s, 12s, 3m05s, 2h10m."""
    if value < 0.1:
        return f"{max(value, 0) * 1000:.0f}ms"
    if value < 10:
        return f"{value:.1f}s"
    if value < 60:
        return f"{value:.0f}s"
    minutes, rest = divmod(int(value), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    return f"{minutes // 60}h{minutes % 60:02}m"
