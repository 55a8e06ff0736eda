"""Cadre's tool of all the agents here: what it does happens once."""

from cadre import tool


@tool
def book(n: int) -> str:
    """Book a trip.

    Args:
        n: the number of the trip.
    """
    return f"trip {n} is booked"
