"""The tools of both systems: smolagents reads this file too, with its own `tool` in the place of Cadre's."""

from cadre import tool


@tool
def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: One.
        b: Other.
    """
    return a + b


@tool
def echo(text: str) -> str:
    """Says what it is told.

    Args:
        text: What.
    """
    return text


@tool
def look(place: str) -> dict[str, str]:
    """Says what is found in a place.

    Args:
        place: Where.
    """
    return {"place": place, "found": "nothing"}


@tool
def fail(why: str) -> str:
    """Fails.

    Args:
        why: The message of its error.
    """
    raise ValueError(why)


@tool
def hold(what: str) -> str:
    """Takes long.

    Args:
        what: What to hold.
    """
    import time

    time.sleep(60)
    return what
