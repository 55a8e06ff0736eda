"""The tool of the comparison: what a machine costs over some years."""

# Annotations are left unquoted: the tool decorator reads them as types.

from typing import Annotated

import msgspec

from cadre import tool

Amount = Annotated[float, msgspec.Meta(ge=0)]


@tool(read_only=True)
def cost_over_years(
    price: Amount, kwh_per_year: Amount, upkeep_per_year: Amount, euros_per_kwh: Amount, years: int
) -> float:
    """Reckons what a machine costs over some years: its price, the electricity and the upkeep.

    Args:
        price: Euros, once.
        kwh_per_year: Electricity that it takes in a year.
        upkeep_per_year: Euros a year.
        euros_per_kwh: Price of electricity.
        years: For how many years.
    """
    return round(price + years * (kwh_per_year * euros_per_kwh + upkeep_per_year), 2)
