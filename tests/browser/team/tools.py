"""A call that waits for a person: time to kill somebody."""

from cadre.tool import tool


@tool(approval="always")
def ask(question: str) -> str:
    """Asks.

    Args:
        question: What.
    """
    return "go on"
