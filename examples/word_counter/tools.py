"""A tool service: `cadre tools tools.py`."""

from cadre import tool


@tool(read_only=True)
def count_words(text: str) -> int:
    """Count the words of a text.

    Args:
        text: The text.
    """
    return len(text.split())
