"""Chunks of an export as points again."""

import re

from cadre.errors import MemoryRefused
from cadre.protocol.memory import Remembered
from cadre_memory.index.schema import OWNER_OF
from cadre_memory.index.vector_index import Chunk, EmbedState
from cadre_memory.tools.chunks import chunk_id, content_hash


def imported_chunk(one: Remembered, state: EmbedState) -> Chunk:
    """Returns the point that the line of an export was made from, still without its vectors. Raises MemoryRefused."""
    if one.id != chunk_id(one.memory, one.index):
        raise MemoryRefused(
            f"{one.id} is not chunk {one.index} of {one.memory!r}: import lines as they were exported"
        )
    if not getattr(one, OWNER_OF[one.scope]):
        raise MemoryRefused(f"{one.id} is of scope {one.scope} and names no {OWNER_OF[one.scope]}")
    if not re.search(r"\S", one.text):
        raise MemoryRefused(f"{one.id} has no text")
    fields = {name: getattr(one, name) for name in Chunk.__struct_fields__ if hasattr(one, name)}
    return Chunk(**fields, created_at=one.at, hash=content_hash(one.text), embed_state=state)
