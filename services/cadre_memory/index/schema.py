"""How memories lie in a collection: its name, its two vectors, its payload and which fields are indexed."""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple, get_args

import msgspec

from cadre.protocol.messages import MemoryScope
from cadre_memory.index.vector_index import Chunk, IndexUnavailable

VERSION = 1
"""Of this layout. Another one is another collection: memories move into it as they do for another model."""

DENSE, SPARSE = "dense", "bm25"
"""Names of the vectors."""

LEXICAL = "lexical"
"""The model's name where there is none."""

OWNER = "owner"
"""Scope and owner in one field, the tenant by which the engine groups what it stores: `user:anna`."""

OWNER_OF: dict[MemoryScope, str] = {
    "run": "tree",
    "session": "session",
    "agent": "agent",
    "team": "team",
    "user": "user",
}
"""The field that holds a memory's owner, by scope."""

KEYWORDS = (
    *("scope", "tree", "run", "agent", "session", "team", "user"),
    *("kind", "memory", "embed_state"),
)
"""Indexed for equality. No field is a boolean: the embedded engine's filters on those match nothing."""

NUMBERS = ("created_at", "expires_at")
"""Indexed for ranges; Unix seconds."""

NAMED = frozenset(KEYWORDS) - {"embed_state"}
"""What a clause may name."""

_NAME = re.compile(r"(?P<prefix>.+)__(?P<model>[a-z0-9-]+)__(?P<dim>[0-9]+|lexical)__s(?P<version>[0-9]+)")

assert set(OWNER_OF) == set(get_args(MemoryScope))


class Schema(NamedTuple):
    """What decides the collection: vectors of two models never meet in one."""

    model: str = LEXICAL
    """For people who read the collection's name."""
    fingerprint: str = ""
    """All that makes the vectors what they are: model, dimension, window, weights."""
    dim: int | None = None
    """Of the dense vectors; None without embeddings."""

    def collection(self, prefix: str) -> str:
        """`<prefix>__<model>-<digest of the fingerprint>__<dim>__s<version>`."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.model.lower()).strip("-")[:40] or "model"
        digest = hashlib.sha256(self.fingerprint.encode()).hexdigest()[:8]
        named = LEXICAL if self.dim is None else f"{slug}-{digest}"
        return f"{prefix}__{named}__{self.dim or LEXICAL}__s{VERSION}"


def is_collection(name: str, prefix: str) -> bool:
    """Whether it holds memories under this prefix."""
    match = _NAME.fullmatch(name)
    return match is not None and match["prefix"] == prefix


def dim_of(collection: str) -> int | None:
    """Of its dense vectors; None when it has none."""
    match = _NAME.fullmatch(collection)
    assert match is not None, collection
    return None if match["dim"] == LEXICAL else int(match["dim"])


def owner(scope: str, name: str) -> str:
    return f"{scope}:{name}"


def payload(chunk: Chunk) -> dict[str, Any]:
    """All but the id, which the point has."""
    fields: dict[str, Any] = msgspec.to_builtins(chunk)
    del fields["id"]
    return {**fields, OWNER: owner(chunk.scope, getattr(chunk, OWNER_OF[chunk.scope]))}


def chunk(id: str, payload: dict[str, Any]) -> Chunk:
    """The inverse of `payload`. Raises IndexUnavailable for a point that this version cannot read."""
    try:
        return msgspec.convert({**payload, "id": id}, Chunk)
    except msgspec.ValidationError as error:
        raise IndexUnavailable(f"point {id} is not a memory as this version stores them: {error}") from error
