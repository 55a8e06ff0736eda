"""The layout of a collection of memories: its name, its two vectors, its payload and which fields are indexed."""

import hashlib
import re
from typing import Any, NamedTuple, get_args

import msgspec

from cadre.protocol.messages import MemoryScope
from cadre_memory.index.vector_index import Chunk, IndexUnavailable

VERSION = 1
"""The version of this layout. Another one is another collection: memories move into it as they do for another model."""

DENSE, SPARSE = "dense", "bm25"
"""The names of the vectors."""

LEXICAL = "lexical"
"""Stands in a collection's name for the model where there is none."""

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
    """What decides on the collection: vectors of two models never meet in one."""

    model: str = LEXICAL
    """The model's name, for people who read the collection's."""
    fingerprint: str = ""
    """All that makes the vectors what they are: model, dimension, window, weights."""
    dim: int | None = None
    """Dimensions of the dense vectors; None without embeddings."""

    def collection(self, prefix: str) -> str:
        """Returns the collection's name: `<prefix>__<model>-<digest of the fingerprint>__<dim>__s<version>`."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.model.lower()).strip("-")[:40] or "model"
        digest = hashlib.sha256(self.fingerprint.encode()).hexdigest()[:8]
        named = LEXICAL if self.dim is None else f"{slug}-{digest}"
        return f"{prefix}__{named}__{self.dim or LEXICAL}__s{VERSION}"


def is_collection(name: str, prefix: str) -> bool:
    """Returns whether a collection of this name holds memories under the prefix."""
    match = _NAME.fullmatch(name)
    return match is not None and match["prefix"] == prefix


def dim_of(collection: str) -> int | None:
    """Returns the dimensions of the collection's dense vectors; None when it has none."""
    match = _NAME.fullmatch(collection)
    assert match is not None, collection
    return None if match["dim"] == LEXICAL else int(match["dim"])


def owner(scope: str, name: str, user: str = "", root: str = "") -> str:
    """Return the value of the field OWNER. A session is one of the agent `root` and of a person: both count for
    sessions alone, and have no line break."""
    return f"{scope}:{name}\n{root}\n{user}" if scope == "session" else f"{scope}:{name}"


def payload(chunk: Chunk) -> dict[str, Any]:
    """Returns the fields of a point's payload: all of the chunk but its id, which is the point's, and the owner."""
    fields: dict[str, Any] = msgspec.to_builtins(chunk)
    del fields["id"]
    return {
        **fields,
        OWNER: owner(chunk.scope, getattr(chunk, OWNER_OF[chunk.scope]), chunk.user, chunk.root),
    }


def chunk(id: str, payload: dict[str, Any]) -> Chunk:
    """Returns the chunk that `payload` was made from. Raises IndexUnavailable when this version cannot read it."""
    try:
        return msgspec.convert({**payload, "id": id}, Chunk)
    except msgspec.ValidationError as error:
        raise IndexUnavailable(f"point {id} is not a memory as this version stores them: {error}") from error
