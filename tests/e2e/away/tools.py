"""Tools whose effects a test can count: each writes a line to the file that the task names."""

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
    with Path(file).open("a") as marks:
        marks.write(f"effect {context.call_id}\n")
    time.sleep(seconds)
    return "effect is done"
