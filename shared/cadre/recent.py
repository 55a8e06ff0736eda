"""A dictionary with a bound: what was stored longest ago makes room."""

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """Holds at most `most` items.

    Storing an item, a new one or one that it holds already, makes it the newest; the oldest ones are dropped.
    Reading changes nothing: `move_to_end` keeps what was found.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
