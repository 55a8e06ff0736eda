"""A tool that a person must agree to."""

from cadre import tool


@tool
def pay(order: str, amount: float) -> str:
    """Pay an order.

    Args:
        order: Its number.
        amount: Euros.
    """
    return f"paid {amount:g} for {order}"
