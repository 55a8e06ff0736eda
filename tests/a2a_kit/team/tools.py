"""A tool that takes its time."""

import time

from cadre import tool


@tool(read_only=True)
def wait(seconds: float) -> str:
    """Wait.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return "waited"
