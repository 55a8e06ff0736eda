"""Tools whose effects a test can count: each writes a line to the file that the tool's text names."""

import time
from pathlib import Path

from cadre import ToolContext, tool


@tool
def effect(file: str, seconds: float, context: ToolContext) -> str:
    """Leave a mark and take some time.

    Args:
        file: Where to leave it.
        seconds: How long to take after that.
    """
    return _mark("effect", file, seconds, context)


@tool(idempotent=True)
def keyed(file: str, seconds: float, context: ToolContext) -> str:
    """Leave a mark that may be left twice.

    Args:
        file: Where to leave it.
        seconds: How long to take after that.
    """
    return _mark("keyed", file, seconds, context)


@tool(read_only=True)
def look(file: str, seconds: float, context: ToolContext) -> str:
    """Look at something for a while.

    Args:
        file: Where to note it.
        seconds: How long to take after that.
    """
    return _mark("look", file, seconds, context)


def _mark(name: str, file: str, seconds: float, context: ToolContext) -> str:
    with Path(file).open("a") as marks:
        marks.write(f"{name} {context.call_id}\n")
    time.sleep(seconds)
    return f"{name} is done"
