"""The content of a vector index, and the duties of an engine: points, filters, the layout of a collection."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, get_args
from uuid import UUID

import msgspec

from cadre.errors import RetryableError, TerminalError
from cadre.protocol.messages import MemoryScope
from cadre_memory.bm25 import SparseVector

EmbedState = Literal["pending", "done", "lexical"]
"""State of a point's dense vectors: still to come, stored, or not wanted (no embeddings configured)."""


class IndexUnavailable(RetryableError):
    """The engine does not answer: what was asked may or may not have happened; ask again."""


class IndexRefused(TerminalError):
    """The engine will never take this: a wrong vector, id, clause, or a batch over its limit."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """One point: a piece of a memory's text and where it comes from. `id` is derived, so storing twice stores once."""

    id: str
    """A UUID."""
    memory: str
    """Id of the memory that it is a piece of: the id of the call that had it remembered."""
    text: str
    index: int = 0
    """The chunk's place within its memory, from 0."""
    count: int = 1
    """Number of chunks of the memory."""
    scope: MemoryScope
    tree: str
    run: str
    step: int = 0
    agent: str
    session: str = ""
    root: str = ""
    """The agent whose session that is."""
    team: str = ""
    user: str = ""
    kind: str = "note"
    """`step`, `answer`, or `note` (what a model chose to remember)."""
    created_at: float
    """The time when it was remembered, Unix seconds."""
    expires_at: float | None = None
    hash: str
    """SHA-256 of the text: the same text twice is shown once."""
    embed_state: EmbedState = "lexical"
    tokens: int = 0


class Vectors(NamedTuple):
    """The vectors of one chunk."""

    sparse: SparseVector
    dense: list[list[float]]
    """One vector per window of the text, of which the best one counts; empty without vectors, or before they are made.
    """


class Clause(msgspec.Struct, frozen=True):
    """A condition that holds when each payload field in `equals` has the value given there.

    No field at all, an unknown field and an empty value are refused (IndexRefused): each would let through more than
    was meant. Everything there is (an operator's export) is one clause per scope: `{"scope": "run"}`, …
    """

    equals: dict[str, str]


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on the visible points: those that fit at least one clause; no clause means no point.

    `scopes` builds it from the caller's identity (or an operator's explicit selection), never from a request's text.
    """

    any_of: list[Clause]
    at: float | None = None
    """The time now, Unix seconds: points that have expired by then are left out; None sees them too."""


class Where(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Further conditions of a search: each field that is given narrows it."""

    kinds: list[str] = []
    other_than: list[str] = []
    """Kinds that are left out."""
    agents: list[str] = []
    memory: str | None = None
    memories: list[str] | None = None
    """Ids of memories; none of them means no point."""
    ids: list[str] | None = None
    """Ids of points."""
    since: float | None = None
    """Remembered at or after, Unix seconds."""
    until: float | None = None
    """Remembered at or before, Unix seconds."""


class ScoredChunk(NamedTuple):
    """A chunk that a search has found; the higher its score, the better it fits."""

    chunk: Chunk
    score: float


class ChunkPage(NamedTuple):
    """Chunks in the order of their ids."""

    chunks: list[Chunk]
    next: str | None
    """The start of the next page; None after the last."""


class IndexStatus(NamedTuple):
    """The state of an index, for readiness and metrics."""

    backend: Literal["server", "sqlite"]
    collection: str
    """The collection that is read."""
    points: int
    """Number of points in it."""
    dense: bool
    """True if searches use dense vectors: not without embeddings, and not before all of a new model's vectors are made.
    """
    moving: bool
    """True if the points are being embedded again for another model."""


_MAX_NUMBER = 3.0e38
"""Numbers are stored in 32 bits."""

_TOKEN_IDS = range(2**32)


def check_points(points: Iterable[tuple[Chunk, Vectors]], dim: int | None) -> None:
    """Raise IndexRefused when a point cannot be stored in a collection of `dim` dimensions (None: words only)."""
    for chunk, vectors in points:
        check_id(chunk.id)
        _check_sparse(chunk.id, vectors.sparse)
        _check_number(chunk.id, "created_at", chunk.created_at)
        if chunk.expires_at is not None:
            _check_number(chunk.id, "expires_at", chunk.expires_at)
        if vectors.dense:
            _check_dense(chunk.id, vectors.dense, dim)
        elif chunk.embed_state == "done":
            raise IndexRefused(f"point {chunk.id} is said to have dense vectors and brings none")
        elif chunk.embed_state == "pending" and dim is None:
            raise IndexRefused(f"point {chunk.id} waits for dense vectors, and no embeddings are configured")


def check_dense(vectors: Mapping[str, list[list[float]]], dim: int | None) -> None:
    """Raise IndexRefused when dense vectors, given by the point's id, do not have `dim` dimensions each."""
    for id, windows in vectors.items():
        check_id(id)
        if not windows:
            raise IndexRefused(f"point {id} gets an empty list of dense vectors")
        _check_dense(id, windows, dim)


def check_query(sparse: SparseVector | None, dense: list[float] | None, dim: int | None) -> None:
    """Raise IndexRefused when a query cannot be searched for in a collection of `dim` dimensions."""
    if sparse is not None:
        _check_sparse("of the query", sparse)
    if dense is not None:
        _check_dense("of the query", [dense], dim)


def check_id(id: str) -> None:
    """Raise IndexRefused for anything but a UUID in its usual form."""
    try:
        usual = str(UUID(id))
    except ValueError:
        usual = ""
    if usual != id:
        raise IndexRefused(f"{id!r} is no id of a point: it must be a UUID such as {UUID(int=1)}")


def _check_dense(id: str, windows: list[list[float]], dim: int | None) -> None:
    if dim is None:
        raise IndexRefused(f"point {id} brings dense vectors, and no embeddings are configured")
    for vector in windows:
        if len(vector) != dim:
            raise IndexRefused(f"point {id}: a dense vector of {len(vector)} numbers, must be {dim}")
        _check_numbers(id, vector)
        if not any(vector):
            raise IndexRefused(f"point {id}: a dense vector of zeros points nowhere")


def _check_sparse(id: str, sparse: SparseVector) -> None:
    if len(sparse.indices) != len(sparse.values):
        raise IndexRefused(
            f"point {id}: {len(sparse.indices)} token ids and {len(sparse.values)} weights, must be as many"
        )
    if len(set(sparse.indices)) != len(sparse.indices):
        raise IndexRefused(f"point {id}: a token id stands twice in its sparse vector")
    if not all(index in _TOKEN_IDS for index in sparse.indices):
        raise IndexRefused(f"point {id}: token ids must be from 0 to {_TOKEN_IDS.stop - 1}")
    _check_numbers(id, sparse.values)


def _check_numbers(id: str, numbers: list[float]) -> None:
    # Not a number fails the comparison too.
    if not all(-_MAX_NUMBER <= number <= _MAX_NUMBER for number in numbers):
        raise IndexRefused(f"point {id}: a vector holds a number that is not finite")


def _check_number(id: str, field: str, number: float) -> None:
    if not -_MAX_NUMBER <= number <= _MAX_NUMBER:
        raise IndexRefused(f"point {id}: {field} is not a finite number")


VERSION = 1
"""The version of this layout. Another one is another collection: memories move into it as they do for another model."""

DENSE, SPARSE = "dense", "bm25"
"""The names of the vectors."""

LEXICAL = "lexical"
"""Stands in a collection's name for the model if there is no model."""

OWNER = "owner"
"""The field that holds scope and owner together, such as `user:anna`: the tenant by which the engine groups points."""

OWNER_OF: dict[MemoryScope, str] = {
    "run": "tree",
    "session": "session",
    "agent": "agent",
    "team": "team",
    "user": "user",
}
"""The field that holds a memory's owner, by scope. A session is one of an agent and a person: see `owner`."""

KEYWORDS = (
    *("scope", "tree", "run", "agent", "session", "team", "user"),
    *("kind", "memory", "embed_state"),
)
"""Fields that are indexed for equality."""

NUMBERS = ("created_at", "expires_at")
"""Fields that are indexed for ranges, in Unix seconds."""

NAMED = frozenset([*KEYWORDS, OWNER]) - {"embed_state"}
"""The fields that a clause may name."""

_NAME = re.compile(r"(?P<prefix>.+)__(?P<model>[a-z0-9-]+)__(?P<dim>[0-9]+|lexical)__s(?P<version>[0-9]+)")

assert set(OWNER_OF) == set(get_args(MemoryScope))


class Schema(NamedTuple):
    """The properties that determine the collection: vectors of two models are never in the same one."""

    model: str = LEXICAL
    """The model's name, for people who read the collection's."""
    fingerprint: str = ""
    """All that makes the vectors what they are: model, dimension, window, weights."""
    dim: int | None = None
    """Dimensions of the dense vectors; None without embeddings."""

    def collection(self, prefix: str) -> str:
        """Return the collection's name: `<prefix>__<model>-<digest of the fingerprint>__<dim>__s<version>`."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.model.lower()).strip("-")[:40] or "model"
        digest = hashlib.sha256(self.fingerprint.encode()).hexdigest()[:8]
        named = LEXICAL if self.dim is None else f"{slug}-{digest}"
        return f"{prefix}__{named}__{self.dim or LEXICAL}__s{VERSION}"


def is_collection(name: str, prefix: str) -> bool:
    """Return whether a collection of this name holds memories under the prefix."""
    match = _NAME.fullmatch(name)
    return match is not None and match["prefix"] == prefix


def dim_of(collection: str) -> int | None:
    """Return the dimensions of the collection's dense vectors; None when it has none."""
    match = _NAME.fullmatch(collection)
    assert match is not None, collection
    return None if match["dim"] == LEXICAL else int(match["dim"])


def owner(scope: str, name: str, user: str = "", root: str = "") -> str:
    """Return the value of the field OWNER. A session is one of the agent `root` and of a person: both count for
    sessions alone, and have no line break."""
    return f"{scope}:{name}\n{root}\n{user}" if scope == "session" else f"{scope}:{name}"


def payload(chunk: Chunk) -> dict[str, Any]:
    """Return the fields of a point's payload: all of the chunk but its id, which is the point's, and the owner."""
    fields: dict[str, Any] = msgspec.to_builtins(chunk)
    del fields["id"]
    return {
        **fields,
        OWNER: owner(chunk.scope, getattr(chunk, OWNER_OF[chunk.scope]), chunk.user, chunk.root),
    }


def chunk(id: str, payload: dict[str, Any]) -> Chunk:
    """Return the chunk that `payload` was made from. Raises IndexUnavailable when this version cannot read it."""
    try:
        return msgspec.convert({**payload, "id": id}, Chunk)
    except msgspec.ValidationError as error:
        raise IndexUnavailable(f"point {id} is not a memory as this version stores them: {error}") from error


Backend = Literal["server", "sqlite"]

PREFETCH = 30
"""Minimum number of points that each leg hands to the fusion."""

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
    """A query: at least one of the two legs."""

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
        """Return the names of all collections."""
        ...

    async def create(self, collection: str) -> None:
        """Create a collection with its indexes; completes one that is there already."""
        ...

    async def drop(self, collection: str) -> None:
        """Remove a collection with all its points; does nothing when it is not there."""
        ...

    async def aliases(self) -> dict[str, str]:
        """Return the collection that each alias names."""
        ...

    async def set_aliases(self, aliases: dict[str, str | None]) -> None:
        """Set aliases, remove those to None; all at once, so that no reader sees a state in between."""
        ...

    async def upsert(self, collection: str, points: list[Point], *, only_new: bool = False) -> None:
        """Store points; replaces those that are there, or with `only_new` leaves them as they are."""
        ...

    async def set_dense(self, collection: str, vectors: dict[str, list[list[float]]]) -> None:
        """Add dense vectors to points by id and mark them `done`; passes over ids that are not there any more."""
        ...

    async def search(self, collection: str, query: Query, selector: PointSelector) -> list[ScoredPoint]:
        """Return the best points first."""
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
        """Return points by id, each with these fields of its payload, or all of them."""
        ...

    async def count(self, collection: str, selector: PointSelector) -> int:
        """Return how many points there are."""
        ...

    async def delete(self, collection: str, selector: PointSelector) -> int:
        """Remove points and return how many there were."""
        ...

    async def close(self) -> None:
        """Close the engine. The store cannot be used any more."""
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
    """The limit on the visible points; None only for the index's own housekeeping."""
    where: Where = Where()
    ids: list[str] | None = None
    state: EmbedState | None = None
    expired_by: float | None = None


def condition_of(selector: PointSelector) -> Condition:
    """Return the selector as one condition. Raises IndexRefused for a clause that lets through more than was meant."""
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
    """Return the clauses alone as a condition.

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
            raise IndexRefused(f"a clause with an empty {field!r} would show memories that have none: leave it out")
    parts: list[Condition] = [Equal(field, value) for field, value in clause.equals.items()]
    scope = clause.equals.get("scope", "")
    for known, field in OWNER_OF.items():
        # A session's name alone selects all sessions of that name, for all agents and persons.
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
    """Return whether a point fits, decided without any engine."""
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
