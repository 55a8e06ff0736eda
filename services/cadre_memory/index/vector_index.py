"""What the memory service needs of a vector index; a Qdrant server and the embedded engine give the same.

A point is one chunk of a memory. Which points a request may touch is decided by `scoping` alone: every read and
delete takes a `Within`, and there is no way around it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import msgspec

from cadre.errors import RetryableError, TerminalError
from cadre.protocol.messages import MemoryScope
from cadre_memory.text.sparse import SparseVector

EmbedState = Literal["pending", "done", "lexical"]
"""Of a point: its dense vectors are still to come, are there, or are not wanted (no embeddings configured)."""


class IndexUnavailable(RetryableError):
    """The engine does not answer: what was asked may or may not have happened; ask again."""


class IndexRefused(TerminalError):
    """The engine will never take this: a wrong vector, id, clause, or a batch over its limit."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """One point: a piece of a memory's text and where it comes from. `id` is derived, so storing twice stores once."""

    id: str
    """UUID."""
    memory: str
    """Id of the memory that it is a piece of: `<call id>` of the call that had it remembered."""
    text: str
    index: int = 0
    """Of the chunk within its memory, from 0."""
    count: int = 1
    """Chunks of the memory."""
    scope: MemoryScope
    tree: str
    run: str
    step: int = 0
    agent: str
    session: str = ""
    team: str = ""
    user: str = ""
    kind: str = "note"
    """`step`, `answer`, or `note` (what a model chose to remember)."""
    created_at: float
    """Unix seconds."""
    expires_at: float | None = None
    hash: str
    """SHA-256 of the text: the same text twice is shown once."""
    embed_state: EmbedState = "lexical"
    tokens: int = 0


class Vectors(NamedTuple):
    """Of one chunk. `dense` holds one vector per window of the text (late interaction: the best one counts)."""

    sparse: SparseVector
    dense: list[list[float]]
    """Empty when there are none, or none yet."""


class Clause(msgspec.Struct, frozen=True):
    """All of `equals` hold: payload field to value.

    No field at all, an unknown field and an empty value are refused (IndexRefused): each would let through more than
    was meant. Everything there is (an operator's export) is one clause per scope: `{"scope": "run"}`, …
    """

    equals: dict[str, str]


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """What may be seen: points that fit at least one clause; no clause means nothing at all.

    Built by `scoping` from the caller's identity (or an operator's explicit selection), never from a request's text.
    """

    any_of: list[Clause]
    at: float | None = None
    """Now, Unix seconds: points that have expired by then are left out; None sees them too."""


class Where(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked for besides: each narrows the search."""

    kinds: list[str] = []
    agents: list[str] = []
    memory: str | None = None
    ids: list[str] | None = None
    """Of points."""
    since: float | None = None
    until: float | None = None


class Hit(NamedTuple):
    chunk: Chunk
    score: float


class Page(NamedTuple):
    chunks: list[Chunk]
    next: str | None
    """To go on from; None after the last."""


class Condition(NamedTuple):
    """How an index is, for readiness and metrics."""

    backend: Literal["server", "edge", "local"]
    collection: str
    """That is read."""
    points: int
    """In it."""
    dense: bool
    """Whether searches use dense vectors: not without embeddings, and not before a new model's have all been made."""
    moving: bool
    """Whether the points are being embedded anew for another model."""


class Index(Protocol):
    """Raises IndexUnavailable when the engine does not answer, IndexRefused when it will never take this."""

    async def upsert(self, points: list[tuple[Chunk, Vectors]]) -> None:
        """Stored durably when it returns (acknowledged means it survives kill -9); repeating it changes nothing."""
        ...

    async def set_dense(self, vectors: dict[str, list[list[float]]]) -> None:
        """Adds dense vectors to points that were stored without (by id) and marks them `done`."""
        ...

    async def search(
        self,
        *,
        sparse: SparseVector | None,
        dense: list[float] | None,
        within: Within,
        where: Where,
        limit: int,
    ) -> list[Hit]:
        """The best first, both legs fused by rank (RRF, k=2); one leg alone keeps its own scores."""
        ...

    async def scroll(self, *, within: Within, where: Where, limit: int, after: str | None = None) -> Page: ...

    async def pending(self, limit: int, after: str | None = None) -> Page:
        """Points whose dense vectors are still to come, by id, for the service's own sweeper."""
        ...

    async def count(self, *, within: Within, where: Where) -> int: ...

    async def delete(self, *, within: Within, where: Where) -> int:
        """Removes the points from every collection, verifies that none is left, and returns how many there were."""
        ...

    async def expire(self, at: float) -> int:
        """Removes from every collection what has expired by then (Unix seconds), whosever it is; how many."""
        ...

    async def condition(self) -> Condition: ...

    async def close(self) -> None: ...
