"""A tool whose effects a test can count: it writes a line to the file that it is given."""

import time
from pathlib import Path

from cadre import ToolContext, tool


@tool
def book(file: str, nights: int, context: ToolContext) -> int:
    """Book a room.

    Args:
        file: Where to note it.
        nights: For how many nights.
    """
    with Path(file).open("a") as marks:
        marks.write(f"book {context.call_id}\n")
    time.sleep(1.5)
    return 120 * nights
