"""The share of searches in which the right memory is among the first five: by meaning, by words, and by both.

Two small sets, written for this: what agents note down, asked for in other words (`steps`), and lines of a log that
differ in a number only (`lookalikes`). Meanings are compared where the local model is installed.
"""

import tempfile
from pathlib import Path
from typing import Any

import msgspec

from cadre_memory.bm25 import encode_document, encode_query
from cadre_memory.embedding import local_model
from cadre_memory.embedding.embedder import Embedder
from cadre_memory.embedding.local_model import open_local
from cadre_memory.host import open_index, schema_of
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.vector_index import Chunk, Clause, Vectors, Where, Within
from cadre_memory.tools.keep import chunk_id, content_hash

FOLDER = Path(__file__).parent / "recall_set"

SETS = ("steps", "lookalikes")

FIRST = 5


class Question(msgspec.Struct, frozen=True):
    query: str
    right: list[int]
    """Places of the right texts."""


class Labelled(msgspec.Struct, frozen=True):
    texts: list[str]
    questions: list[Question]


def read_set(name: str) -> Labelled:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Labelled)


async def measure() -> dict[str, Any]:
    """`recall_<set>_<sparse|dense|hybrid>`, each from 0 to 1; without the local model only the sparse ones."""
    values: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        embedder = await open_local(Path(folder)) if local_model.missing() is None else None
        index = await open_index(schema_of(embedder), directory=Path(folder))
        try:
            for name in SETS:
                values |= await _measured(index, embedder, name)
        finally:
            await index.close()
    return values


async def _measured(index: MemoryIndex, embedder: Embedder | None, name: str) -> dict[str, float]:
    asked = read_set(name)
    await _store(index, embedder, name, asked.texts)
    legs = ["sparse"] if embedder is None else ["sparse", "dense", "hybrid"]
    found = dict.fromkeys(legs, 0.0)
    within = Within(any_of=[Clause({"scope": "agent", "agent": name})])
    for question in asked.questions:
        sparse = encode_query(question.query)
        dense = await embedder.query(question.query) if embedder is not None else None
        for leg in legs:
            hits = await index.search(
                sparse=None if leg == "dense" else sparse,
                dense=None if leg == "sparse" else dense,
                within=within,
                where=Where(),
                limit=FIRST,
            )
            places = {hit.chunk.index for hit in hits}
            found[leg] += len(places & set(question.right)) / len(question.right)
    return {f"recall_{name}_{leg}": total / len(asked.questions) for leg, total in found.items()}


async def _store(index: MemoryIndex, embedder: Embedder | None, name: str, texts: list[str]) -> None:
    windows = await embedder.documents(texts) if embedder is not None else [[] for _ in texts]
    points = []
    for place, (text, dense) in enumerate(zip(texts, windows, strict=True)):
        chunk = Chunk(
            id=chunk_id(name, place),
            memory=name,
            text=text,
            index=place,
            scope="agent",
            tree="bench",
            run="bench",
            agent=name,
            created_at=0.0,
            hash=content_hash(text),
            embed_state="done" if dense else "lexical",
        )
        points.append((chunk, Vectors(encode_document(text), dense)))
    await index.upsert(points)
