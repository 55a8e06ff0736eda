"""What is stored in a vector index, and what is asked of it and answered, whichever engine it is on.

A point is one chunk of a memory. Which points a request may touch is decided by `scopes` alone: every read and
delete takes a `Within`, and there is no way around it.
"""

from typing import Literal, NamedTuple

import msgspec

from cadre.errors import RetryableError, TerminalError
from cadre.protocol.messages import MemoryScope
from cadre_memory.text.sparse import SparseVector

EmbedState = Literal["pending", "done", "lexical"]
"""Whether a point's dense vectors are still to come, are there, or are not wanted (no embeddings configured)."""


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
    """How many chunks the memory has."""
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
    """When it was remembered, Unix seconds."""
    expires_at: float | None = None
    hash: str
    """SHA-256 of the text: the same text twice is shown once."""
    embed_state: EmbedState = "lexical"
    tokens: int = 0


class Vectors(NamedTuple):
    """The vectors of one chunk."""

    sparse: SparseVector
    dense: list[list[float]]
    """One vector per window of the text, of which the best one counts; empty when there are none, or none yet."""


class Clause(msgspec.Struct, frozen=True):
    """A condition that holds when each payload field in `equals` has the value given there.

    No field at all, an unknown field and an empty value are refused (IndexRefused): each would let through more than
    was meant. Everything there is (an operator's export) is one clause per scope: `{"scope": "run"}`, …
    """

    equals: dict[str, str]


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """What may be seen: points that fit at least one clause; no clause means nothing at all.

    `scopes` builds it from the caller's identity (or an operator's explicit selection), never from a request's text.
    """

    any_of: list[Clause]
    at: float | None = None
    """The time now, Unix seconds: points that have expired by then are left out; None sees them too."""


class Where(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked for besides: each field that is given narrows the search."""

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
    """Where the next page begins; None after the last."""


class IndexStatus(NamedTuple):
    """The state of an index, for readiness and metrics."""

    backend: Literal["server", "sqlite"]
    collection: str
    """The collection that is read."""
    points: int
    """How many points are in it."""
    dense: bool
    """Whether searches use dense vectors: not without embeddings, and not before a new model's have all been made."""
    moving: bool
    """Whether the points are being embedded anew for another model."""
