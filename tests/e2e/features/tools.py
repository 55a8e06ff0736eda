"""Tools without effects, one for each thing that a test looks at."""

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
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The one.
        b: The other.
    """
    return a + b


@tool(read_only=True)
def total(numbers: list[int]) -> int:
    """Add many numbers.

    Args:
        numbers: All of them.
    """
    return sum(numbers)


@tool(read_only=True)
def big(size: int) -> str:
    """Tell a long story.

    Args:
        size: Characters.
    """
    return "x" * size


@tool(read_only=True)
def nap(seconds: float) -> str:
    """Take some time.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return "napped"
