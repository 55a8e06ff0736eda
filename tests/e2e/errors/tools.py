"""Tools that work, that fail, and one that checks answers: what it was asked stands in a file."""

import re
import time
from pathlib import Path
from typing import Any

from cadre import tool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: One.
        b: Other.
    """
    return a + b


@tool(read_only=True)
def fall(height: int) -> str:
    """Falls.

    Args:
        height: From where.
    """
    raise ValueError(f"fell from {height}")


@tool
def adds_up(answer: Any, task: str) -> bool:
    """Whether the sum is that of the numbers in the task's first line. Where that names a file, it says there that
    it is at work, and waits for a file of that name with `.go` behind it.

    Args:
        answer: Whose sum is checked.
        task: With the numbers.
    """
    line = task.splitlines()[0]
    if found := re.search(r"/\S+", line):
        with Path(found[0]).open("a") as book:
            book.write("at work\n")
        while not Path(f"{found[0]}.go").exists():
            time.sleep(0.05)
        line = line.replace(found[0], "")
    numbers = [int(number) for number in re.findall(r"\d+", line)]
    if len(numbers) > 2:
        raise ValueError("two numbers are as many as can be checked")
    return bool(sum(numbers) == answer["sum"])
