"""What a nursery sells."""

from cadre import tool

PLANTS = {"rose": (3, 40), "tulip": (2, 120), "orchid": (12, 9), "fern": (7, 31), "ivy": (4, 55)}
"""Price in euros and number in stock."""


def _find(plant: str) -> tuple[int, int]:
    for name, found in PLANTS.items():
        if name in plant.lower():
            return found
    raise ValueError(f"there is no {plant!r}; there are {', '.join(PLANTS)}")


@tool(read_only=True)
def price_of(plant: str) -> str:
    """Look up what one plant costs.

    Args:
        plant: Name of the plant.
    """
    return f"one {plant} costs {_find(plant)[0]} euros"


@tool(read_only=True)
def stock_of(plant: str) -> str:
    """Look up how many plants of a kind are in stock.

    Args:
        plant: Name of the plant.
    """
    return f"{_find(plant)[1]} of {plant} are in stock"


@tool(read_only=True)
def unit_price(plant: str) -> int:
    """Look up what one plant costs, in euros.

    Args:
        plant: Name of one plant.
    """
    return _find(plant)[0]


@tool(read_only=True)
def plant_on(shelf: int) -> str:
    """Look up which plant stands on a shelf.

    Args:
        shelf: Number of the shelf.
    """
    names = [*PLANTS]
    if not 1 <= shelf <= len(names):
        raise ValueError(f"there is no shelf {shelf}; there are 1 to {len(names)}")
    return names[shelf - 1]
