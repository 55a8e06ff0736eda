"""Tools that code calls: their executions are counted in a file, and one can be held."""

import time
from pathlib import Path

from cadre import tool


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: One.
        b: Other.
    """
    return a + b


@tool
def spend(file: str, amount: int) -> str:
    """Notes an amount, each time it runs.

    Args:
        file: Where.
        amount: How much.
    """
    with Path(file).open("a") as book:
        book.write(f"{amount}\n")
    return f"spent {amount}"


@tool
def slow(file: str) -> str:
    """Says that it runs, and returns when it may.

    Args:
        file: Where it says so; it waits for a file of that name with `.go` behind it.
    """
    with Path(file).open("a") as book:
        book.write("at work\n")
    go = Path(f"{file}.go")
    while not go.exists():
        time.sleep(0.05)
    return "slow is done"


@tool(read_only=True, name="web-look")
def web_look(url: str) -> dict[str, str]:
    """Looks something up.

    Args:
        url: What.
    """
    return {"title": f"the page {url}"}


@tool(read_only=True)
def rows(count: int) -> list[dict[str, int]]:
    """Returns rows.

    Args:
        count: How many.
    """
    return [{"n": n, "square": n * n} for n in range(count)]
