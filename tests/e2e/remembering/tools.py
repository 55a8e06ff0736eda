"""Tools whose results are worth keeping, or long."""

from cadre import tool


@tool(read_only=True)
def jot(text: str) -> str:
    """Writes a text down.

    Args:
        text: The text.
    """
    return f"jotted: {text}"


@tool(read_only=True)
def recite(number: int) -> str:
    """Recites a verse.

    Args:
        number: Which one.
    """
    return f"verse {number}: " + "and so it goes on " * 60
