"""What an engine must be able to do with collections, and which points a question may see, as one tree of conditions
that each store's filter is made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from cadre_memory.bm25 import SparseVector
from cadre_memory.index.vector_index import (
    NAMED,
    OWNER,
    OWNER_OF,
    Clause,
    EmbedState,
    IndexRefused,
    IndexUnavailable,
    Where,
    Within,
    owner,
)

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


class Equal(msgspec.Struct, frozen=True):
    """Points whose field has this value."""

    field: str
    value: str


class OneOf(msgspec.Struct, frozen=True):
    """Points whose field has one of these values."""

    field: str
    values: list[str]


class Between(msgspec.Struct, frozen=True):
    """Points whose field is in a range, both ends included; a point without the field is outside."""

    field: str
    least: float | None = None
    most: float | None = None


class Ids(msgspec.Struct, frozen=True):
    """Points with one of these ids; none of them means no point."""

    ids: list[str]


class Not(msgspec.Struct, frozen=True):
    """Points that do not fit the part."""

    part: Condition


class AnyOf(msgspec.Struct, frozen=True):
    """Points that fit one of the parts. It is never empty: an engine's empty `should` lets everything through."""

    parts: list[Condition]


class AllOf(msgspec.Struct, frozen=True):
    """Points that fit all of the parts; without parts, every point."""

    parts: list[Condition]


Condition = Equal | OneOf | Between | Ids | Not | AnyOf | AllOf

NOTHING = Ids([])


class PointSelector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Selects points of a collection: those that fit all that is given."""

    within: Within | None = None
    """What may be seen; None only for the index's own housekeeping."""
    where: Where = Where()
    ids: list[str] | None = None
    state: EmbedState | None = None
    expired_by: float | None = None


def condition_of(selector: PointSelector) -> Condition:
    """Returns the selector as one condition. Raises IndexRefused for a clause that lets through more than was meant."""
    parts: list[Condition] = []
    if selector.within is not None:
        parts += [visible(selector.within), *_unexpired(selector.within.at)]
    parts += _asked(selector.where)
    if selector.ids is not None:
        parts.append(Ids(selector.ids))
    if selector.state is not None:
        parts.append(Equal("embed_state", selector.state))
    if selector.expired_by is not None:
        parts.append(Between("expires_at", most=selector.expired_by))
    return AllOf(parts)


def visible(within: Within) -> Condition:
    """Returns the clauses alone as a condition.

    It is also the corpus that a word's rarity is counted in, so that no owner learns of another's memories.
    """
    return AnyOf([_clause(one) for one in within.any_of]) if within.any_of else NOTHING


def _clause(clause: Clause) -> Condition:
    if not clause.equals:
        raise IndexRefused("a clause without a field would show every memory: name what it is limited to")
    for field, value in clause.equals.items():
        if field not in NAMED:
            raise IndexRefused(f"no clause can name {field!r}: it must be one of {', '.join(sorted(NAMED))}")
        if not value:
            raise IndexRefused(
                f"a clause with an empty {field!r} would show memories that have none: leave it out"
            )
    parts: list[Condition] = [Equal(field, value) for field, value in clause.equals.items()]
    scope = clause.equals.get("scope", "")
    for known, field in OWNER_OF.items():
        # A session's name alone selects all sessions of that name, whatever their agents and persons.
        if known == scope != "session" and field in clause.equals:
            parts.append(Equal(OWNER, owner(scope, clause.equals[field])))
    return AllOf(parts)


def _unexpired(at: float | None) -> list[Condition]:
    # What never expires has no number there, and is in no range.
    return [] if at is None else [Not(Between("expires_at", most=at))]


def _asked(where: Where) -> list[Condition]:
    parts: list[Condition] = []
    if where.kinds:
        parts.append(OneOf("kind", where.kinds))
    if where.other_than:
        parts.append(Not(OneOf("kind", where.other_than)))
    if where.agents:
        parts.append(OneOf("agent", where.agents))
    if where.memory is not None:
        parts.append(Equal("memory", where.memory))
    if where.memories is not None:
        parts.append(OneOf("memory", where.memories) if where.memories else NOTHING)
    if where.ids is not None:
        parts.append(Ids(where.ids))
    if where.since is not None or where.until is not None:
        parts.append(Between("created_at", least=where.since, most=where.until))
    return parts


def admits(condition: Condition, id: str, payload: Mapping[str, Any]) -> bool:
    """Returns whether a point fits, decided without any engine."""
    match condition:
        case Equal(field, value):
            return bool(payload.get(field) == value)
        case OneOf(field, values):
            return payload.get(field) in values
        case Between(field, least, most):
            found = payload.get(field)
            return found is not None and (least is None or found >= least) and (most is None or found <= most)
        case Ids(ids):
            return id in ids
        case Not(part):
            return not admits(part, id, payload)
        case AnyOf(parts):
            return any(admits(part, id, payload) for part in parts)
        case AllOf(parts):
            return all(admits(part, id, payload) for part in parts)
