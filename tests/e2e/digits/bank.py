"""Tools that say which numbers they were given, digit by digit."""

from typing import Any

from cadre import tool


@tool(approval="when: account > 100")
def transfer(account: int, amount: float, about: dict[str, Any]) -> dict[str, Any]:
    """Move money.

    Args:
        account: The account's number.
        amount: How much.
        about: Anything that is known of it.
    """
    return {"account": account, "digits": str(account), "amount": amount, "about": about}
