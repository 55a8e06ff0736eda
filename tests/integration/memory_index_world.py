"""Memories to store, and an index on each engine to store them in."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from uuid import NAMESPACE_OID, uuid4, uuid5

import pytest

from cadre.protocol.messages import MemoryScope
from cadre_memory.bm25 import encode_document
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.qdrant_store import QdrantStore
from cadre_memory.index.sqlite_store import SqliteStore
from cadre_memory.index.vector_index import Chunk, Clause, Schema, Store, Vectors, Where, Within

Engine = Literal["sqlite", "server"]

QDRANT_URL = os.environ.get("QDRANT_URL", "")

ENGINES = [
    "sqlite",
    pytest.param(
        "server",
        marks=pytest.mark.skipif(not QDRANT_URL, reason="needs a Qdrant server: set QDRANT_URL to its URL"),
    ),
]

SMALL = Schema(model="small", fingerprint="small:4", dim=4)
OTHER = Schema(model="other", fingerprint="other:3", dim=3)
WORDS_ONLY = Schema()

NOWHERE = Where()

SCOPES: tuple[MemoryScope, ...] = ("run", "session", "agent", "team", "user")
ALL = Within(any_of=[Clause({"scope": scope}) for scope in SCOPES])


@asynccontextmanager
async def open_store(engine: Engine, folder: Path) -> AsyncIterator[Store]:
    store: Store
    match engine:
        case "sqlite":
            store = await SqliteStore.open(folder)
        case "server":
            store = QdrantStore.server(QDRANT_URL, os.environ.get("QDRANT_API_KEY", ""))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def fresh_index(store: Store, own: Schema = SMALL) -> AsyncIterator[MemoryIndex]:
    """With collections that no other test has."""
    index = await MemoryIndex.open(store, own, prefix=f"t{uuid4().hex[:8]}")
    try:
        yield index
    finally:
        for name in await store.collections():
            if name.startswith(index.prefix):
                await store.drop(name)


def point_id(name: str) -> str:
    return str(uuid5(NAMESPACE_OID, name))


def memory(name: str, text: str, **fields: Any) -> Chunk:
    """Of anna, in her own scope, unless asked otherwise; `name` decides the id."""
    given: dict[str, Any] = {
        "scope": "user",
        "tree": "t1",
        "run": "t1",
        "agent": "scribe",
        "user": "anna",
        "created_at": 1000.0,
        **fields,
    }
    return Chunk(id=point_id(name), memory=name, text=text, hash=sha256(text.encode()).hexdigest(), **given)


def with_words(chunk: Chunk, dense: list[list[float]] | None = None) -> tuple[Chunk, Vectors]:
    return chunk, Vectors(encode_document(chunk.text), dense or [])


def of_user(name: str, at: float | None = None) -> Within:
    return Within(any_of=[Clause({"scope": "user", "user": name})], at=at)


def names(chunks: list[Chunk]) -> set[str]:
    return {chunk.memory for chunk in chunks}
