"""The notes of the tools: one line per execution."""

from pathlib import Path
from typing import NamedTuple

UNSAFE = frozenset({"spend", "grind"})
"""Tools that may never run twice for one call."""


class Line(NamedTuple):
    """One execution of a tool, as the tool itself wrote it down."""

    tool: str
    call: str
    job: str
    pid: int


def read_executions(file: Path) -> list[Line]:
    lines = file.read_text().splitlines() if file.exists() else []
    fields = [line.split() for line in lines]
    return [Line(tool, call, job, int(pid)) for tool, call, job, pid in fields]
