"""Builds the points that keep a memory: one chunk per piece of its text, with ids derived from the memory's."""

import hashlib
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec

from cadre.protocol.messages import MemoryScope
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import Chunk, EmbedState

_NAMES = UUID("6f1f6d5b-6b0f-5e2c-9d5a-4f0c4b7f3f11")


class About(NamedTuple):
    """What is known of a memory besides its text and its owner."""

    scope: MemoryScope
    kind: str
    step: int
    created_at: float
    """When it was remembered, Unix seconds."""
    expires_at: float | None
    """When it expires, Unix seconds; None: never."""


def chunk_id(memory: str, index: int) -> str:
    """Returns the UUID of a chunk. It is derived, so a text that is stored twice under one id is stored once."""
    return str(uuid5(_NAMES, f"{memory}/{index}"))


def content_hash(text: str) -> str:
    """Returns the SHA-256 of the text with every run of blanks as one, and none at its ends."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def chunks_of(
    texts: list[str], memory: str, caller: Caller, about: About, embed_state: EmbedState = "lexical"
) -> list[Chunk]:
    """Returns the points of one memory, made of the pieces of its text."""
    origin = caller.origin
    return [
        Chunk(
            id=chunk_id(memory, index),
            memory=memory,
            text=text,
            index=index,
            count=len(texts),
            tree=caller.tree,
            run=caller.run,
            agent=caller.agent,
            session=origin.session or "",
            root=origin.root or "",
            team=origin.team or "",
            user=origin.user or "",
            hash=content_hash(text),
            embed_state=embed_state,
            **about._asdict(),
        )
        for index, text in enumerate(texts)
    ]


def same_fields(chunk: Chunk, shown: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns those fields of the chunk that a struct in which it is shown has too."""
    return {field: getattr(chunk, field) for field in shown.__struct_fields__ if hasattr(chunk, field)}
