"""The tools of the scaling benchmark: one that is as fast as can be, one that says much, one that never returns."""

from cadre import ToolContext, tool

PAGE_CHARS = 5_000


@tool(read_only=True)
async def lookup(key: str) -> str:
    """Look up a fact.

    Args:
        key: What to look up.
    """
    return f"The fact about {key} is that somebody has looked it up."


@tool(read_only=True)
async def page(number: int) -> str:
    """Read a page.

    Args:
        number: Which one.
    """
    lines = (f"Page {number}, line {line}: nothing of note has happened.\n" for line in range(200))
    return "".join(lines)[:PAGE_CHARS]


@tool(read_only=True)
def hang(context: ToolContext) -> str:
    """Wait until it is told to stop."""
    context.cancelled.wait()
    return "stopped"
