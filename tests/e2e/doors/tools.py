"""A tool whose effects a test can count."""

from pathlib import Path

from cadre import tool


@tool(approval_text="Refund {amount} €")
def refund(file: str, amount: float) -> str:
    """Pay money back.

    Args:
        file: Where to note it.
        amount: How much, in euros.
    """
    with Path(file).open("a") as book:
        book.write(f"refund {amount:g}\n")
    return f"refunded {amount:g}"
