"""Tools of a shop, one of which asks a person in words of its own."""

from pathlib import Path

from cadre import tool


@tool(approval="when: amount > 100", approval_text="Refund {amount} € for order {order}")
def pay_back(file: str, order: str, amount: float) -> str:
    """Pay money back.

    Args:
        file: Where to note it.
        order: The order.
        amount: How much, in euros.
    """
    with Path(file).open("a") as books:
        books.write(f"{order} {amount:g}\n")
    return f"{amount:g} € went back for order {order}"


@tool(read_only=True)
def look_up(order: str) -> dict[str, str]:
    """Look up an order.

    Args:
        order: Its number.
    """
    if order == "0":
        raise LookupError("there is no order 0")
    return {"order": order, "customer": "Ann Example", "paid": "500 €", "state": "delivered on 3 May"}


@tool(read_only=True)
def read_letters(customer: str) -> list[str]:
    """Read all that a customer has written.

    Args:
        customer: Their name.
    """
    return [f"{number}. {customer} asks once more where the parcel is that was promised." for number in range(200)]
