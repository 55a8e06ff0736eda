"""What an engine must be able to do with collections; the index and the move to another model need no more."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from cadre_memory.index.filters import Selection
from cadre_memory.index.vector_index import IndexUnavailable
from cadre_memory.text.sparse import SparseVector

Backend = Literal["server", "edge", "local"]

PREFETCH = 30
"""Points that each leg hands to the fusion, at least."""

RRF_K = 2
"""Measured: 60 buries the one exact hit of the sparse leg below what the dense one half agrees on."""


class CollectionGone(IndexUnavailable):
    """It was there when its name was looked up: look again."""


class Point(msgspec.Struct, frozen=True):
    id: str
    payload: dict[str, Any]
    sparse: SparseVector
    dense: list[list[float]] = []


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """At least one of the two legs."""

    sparse: SparseVector | None = None
    dense: list[float] | None = None
    limit: int


class Found(NamedTuple):
    id: str
    payload: dict[str, Any]
    score: float


class Record(NamedTuple):
    id: str
    payload: dict[str, Any]


class Records(NamedTuple):
    records: list[Record]
    next: str | None
    """Id to go on from; None after the last."""


class Store(Protocol):
    """All raise IndexUnavailable (CollectionGone among them) and IndexRefused.

    Every write may be repeated, is durable when it returns, and has been checked before (`checking`).
    """

    backend: Backend

    async def collections(self) -> list[str]: ...

    async def create(self, collection: str) -> None:
        """With its indexes; one that is there already is completed."""
        ...

    async def drop(self, collection: str) -> None:
        """One that is not there is no error."""
        ...

    async def aliases(self) -> dict[str, str]:
        """Collection by alias."""
        ...

    async def point(self, aliases: dict[str, str | None]) -> None:
        """Sets aliases, removes those to None; all at once, so that nobody sees a state in between."""
        ...

    async def upsert(self, collection: str, points: list[Point], *, only_new: bool = False) -> None: ...

    async def set_dense(self, collection: str, vectors: dict[str, list[list[float]]]) -> None:
        """Ids that are not there any more are passed over."""
        ...

    async def search(self, collection: str, query: Query, selection: Selection) -> list[Found]: ...

    async def scroll(
        self,
        collection: str,
        selection: Selection,
        *,
        limit: int,
        after: str | None = None,
        fields: list[str] | None = None,
    ) -> Records:
        """By id; with these fields of the payload, or all."""
        ...

    async def count(self, collection: str, selection: Selection) -> int: ...

    async def delete(self, collection: str, selection: Selection) -> int:
        """How many there were."""
        ...

    async def close(self) -> None: ...
