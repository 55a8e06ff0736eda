"""The tools of the benchmarks of steps: they return a line or a page, as fast as a tool can."""

from cadre import tool


@tool(read_only=True)
async def lookup(key: str) -> str:
    """Look up a fact.

    Args:
        key: What to look up.
    """
    return f"The fact about {key} is that somebody has looked it up, and that this line is what was found."


@tool(read_only=True)
async def read_page(number: int) -> str:
    """Read a page.

    Args:
        number: Which one.
    """
    return f"Page {number:03d}. " + "It has been written down so that somebody reads on. " * 80


@tool(read_only=True)
async def observe(number: int, size: int) -> str:
    """Read a part of a text.

    Args:
        number: Which one.
        size: Its length in characters.
    """
    return f"Part {number:04d}. " + "x" * (size - 12)
