"""Tools of the recorded runs."""

import time

from cadre import tool


@tool(read_only=True)
def say(text: str) -> str:
    """Say something.

    Args:
        text: What to say.
    """
    return text


@tool(read_only=True)
def fail(text: str) -> str:
    """Fail.

    Args:
        text: What the error says.
    """
    raise ValueError(text)


@tool(read_only=True)
def rest(seconds: float) -> str:
    """Take some time.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return "rested"


@tool
def mark(text: str) -> str:
    """Do something that is done once.

    Args:
        text: What to do.
    """
    return f"{text} is marked"
