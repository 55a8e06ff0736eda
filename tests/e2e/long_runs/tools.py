"""Tools with much to say."""

from cadre import tool


@tool(read_only=True)
def recite(number: int) -> str:
    """Recites a verse.

    Args:
        number: Which one.
    """
    return f"verse {number}: " + "and so it goes on " * 60


@tool(read_only=True)
def chronicle() -> str:
    """Tells of 400 years, a line for each."""
    return "\n".join(f"In the year {1000 + year} there were {year * 7919 % 1000:03} sheep." for year in range(400))
