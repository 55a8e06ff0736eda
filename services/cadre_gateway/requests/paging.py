"""Pages of a list."""

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def page_of(items: Iterable[T], limit: int) -> tuple[list[T], T | None]:
    """At most `limit` items, and the last of them when more follow."""
    found = list(islice(items, limit + 1))
    return found[:limit], found[limit - 1] if len(found) > limit else None
