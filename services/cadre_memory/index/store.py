"""What an engine must be able to do with collections; the index and the migration to another model need no more."""

from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from cadre_memory.index.filters import PointSelector
from cadre_memory.index.vector_index import IndexUnavailable
from cadre_memory.text.sparse import SparseVector

Backend = Literal["server", "sqlite"]

PREFETCH = 30
"""How many points each leg hands to the fusion, at least."""

RRF_K = 2
"""The constant of rank fusion. Measured: with 60, an exact hit of one leg sinks below vague ones of the other."""


class CollectionGone(IndexUnavailable):
    """The collection is not there, though it was when its name was looked up: look again."""


class Point(msgspec.Struct, frozen=True):
    """A point as it is stored."""

    id: str
    payload: dict[str, Any]
    sparse: SparseVector
    dense: list[list[float]] = []


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for: at least one of the two legs."""

    sparse: SparseVector | None = None
    dense: list[float] | None = None
    limit: int


class ScoredPoint(NamedTuple):
    """A point that a search has found."""

    id: str
    payload: dict[str, Any]
    score: float


class PointRecord(NamedTuple):
    """A point that is read: its id and the fields that were asked for."""

    id: str
    payload: dict[str, Any]


class RecordPage(NamedTuple):
    """Points in the order of their ids."""

    records: list[PointRecord]
    next: str | None
    """Id where the next page begins; None after the last."""


class Store(Protocol):
    """Keeps points in collections.

    All methods raise IndexUnavailable (CollectionGone among them) and IndexRefused. Every write may be repeated, is
    durable when it returns, and has been checked before (`check_points`).
    """

    backend: Backend

    async def collections(self) -> list[str]:
        """Returns the names of all collections."""
        ...

    async def create(self, collection: str) -> None:
        """Creates a collection with its indexes; completes one that is there already."""
        ...

    async def drop(self, collection: str) -> None:
        """Removes a collection with all its points; does nothing when it is not there."""
        ...

    async def aliases(self) -> dict[str, str]:
        """Returns the collection that each alias names."""
        ...

    async def set_aliases(self, aliases: dict[str, str | None]) -> None:
        """Sets aliases, removes those to None; all at once, so that nobody sees a state in between."""
        ...

    async def upsert(self, collection: str, points: list[Point], *, only_new: bool = False) -> None:
        """Stores points; replaces those that are there, or with `only_new` leaves them as they are."""
        ...

    async def set_dense(self, collection: str, vectors: dict[str, list[list[float]]]) -> None:
        """Adds dense vectors to points by id and marks them `done`; passes over ids that are not there any more."""
        ...

    async def search(self, collection: str, query: Query, selector: PointSelector) -> list[ScoredPoint]:
        """Returns the best points first."""
        ...

    async def scroll(
        self,
        collection: str,
        selector: PointSelector,
        *,
        limit: int,
        after: str | None = None,
        fields: list[str] | None = None,
    ) -> RecordPage:
        """Returns points by id, each with these fields of its payload, or all of them."""
        ...

    async def count(self, collection: str, selector: PointSelector) -> int:
        """Returns how many points there are."""
        ...

    async def delete(self, collection: str, selector: PointSelector) -> int:
        """Removes points and returns how many there were."""
        ...

    async def close(self) -> None:
        """Lets go of the engine. The store cannot be used any more."""
        ...
