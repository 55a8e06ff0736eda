"""Tools to spend steps and time with."""

from pathlib import Path

from cadre import ToolContext, tool


@tool(read_only=True)
def echo(text: str) -> str:
    """Say a text again.

    Args:
        text: The text.
    """
    return f"heard {text}"


@tool
def linger(file: str, seconds: float, context: ToolContext) -> str:
    """Take some time, or less when it is told to stop.

    Args:
        file: Where to note how it went.
        seconds: How long.
    """
    _mark(file, "begun")
    stopped = context.cancelled.wait(seconds)
    _mark(file, "stopped" if stopped else "done")
    return "lingered"


def _mark(file: str, text: str) -> None:
    with Path(file).open("a") as marks:
        marks.write(f"{text}\n")
