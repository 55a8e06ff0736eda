"""Words of a text as weights by token id."""

from collections.abc import Iterable
from typing import NamedTuple


class SparseVector(NamedTuple):
    """BM25 weights by token id: two lists of the same length, ordered by token id."""

    indices: list[int]
    values: list[float]


def sparse_vector(weights: Iterable[tuple[int, float]]) -> SparseVector:
    """Orders weights by token id; where an id stands twice, the largest weight counts."""
    largest: dict[int, float] = {}
    for index, weight in weights:
        largest[index] = max(weight, largest.get(index, 0.0))
    return SparseVector(sorted(largest), [largest[index] for index in sorted(largest)])
