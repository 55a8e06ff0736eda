"""Define generations of shards: the id of a tree says in which one it began, so it stays when shards are added."""

from typing import NamedTuple

from cadre.errors import RetryableError

MARKERS = "ghijklmnopqrstuvwxyz"
"""The last characters of tree ids: the first is that of the second generation. Ids of the first one end in a digit."""

ID_LENGTH = 32

MOST_GENERATIONS = 1 + len(MARKERS)
MOST_SHARDS = 256


class UnknownGeneration(RetryableError):
    """The tree began in a generation of shards that this process does not know, or that does not exist."""

    def __init__(self, tree: str) -> None:
        super().__init__(f"tree {tree} began in a generation of shards that is not known here")
        self.tree = tree


class Layout(NamedTuple):
    """The streams of a deployment, as their metadata describes them."""

    generations: tuple[int, ...]
    """Number of shards in each generation, the first generation first."""
    growing: int = 0
    """Number of shards that a growth in progress leads to; 0 for none."""
    serves: bool = False
    """True if all streams of that growth exist, so that services take from them; no tree begins there yet."""

    @property
    def shards(self) -> int:
        """Return the number of streams that services take from."""
        return self.growing if self.serves else self.generations[-1]

    def __str__(self) -> str:
        return " -> ".join(map(str, self.generations))


def generation_of(tree: str) -> int:
    """Return the number of the generation, from 0, in which a tree began. Any text is an id of some generation."""
    return MARKERS.find(tree[-1]) + 1 if len(tree) == ID_LENGTH else 0


def in_generation(tree: str, generation: int) -> str:
    """Return the id of a generation that has the other characters of this one, which is of the first generation."""
    return f"{tree[:-1]}{MARKERS[generation - 1]}" if generation else tree
