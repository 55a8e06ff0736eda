"""Tools of the remote agent, which a person must approve."""

from cadre.tool import tool


@tool(idempotent=True)
def file_suit(against: str) -> str:
    """Files a suit.

    Args:
        against: Against whom.
    """
    return f"filed against {against}"
