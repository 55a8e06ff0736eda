"""The tool of the step benchmark: it reads and returns a line, as fast as a tool can."""

from cadre import tool


@tool(read_only=True)
async def lookup(key: str) -> str:
    """Look up a fact.

    Args:
        key: What to look up.
    """
    return f"The fact about {key} is that somebody has looked it up, and that this line is what was found."
