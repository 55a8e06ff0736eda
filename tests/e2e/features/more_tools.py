"""A tool in its own executor."""

import time

from cadre import tool


@tool(read_only=True)
def snooze(seconds: float) -> str:
    """Take some time elsewhere.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return "snoozed"
