"""Tools whose effects a test can count: each writes a line to the file that it is given."""

from pathlib import Path

from cadre import tool


@tool
def refund(file: str, amount: float) -> str:
    """Pay money back.

    Args:
        file: Where to note it.
        amount: How much, in euros.
    """
    return _mark(file, f"refund {amount:g}")


@tool
def note(file: str, text: str) -> str:
    """Write a note.

    Args:
        file: Where to write it.
        text: What to write.
    """
    return _mark(file, f"note {text}")


@tool(approval="always")
def wipe(file: str) -> str:
    """Empty the books.

    Args:
        file: The books.
    """
    return _mark(file, "wipe")


def _mark(file: str, text: str) -> str:
    with Path(file).open("a") as marks:
        marks.write(f"{text}\n")
    return f"{text} is done"
