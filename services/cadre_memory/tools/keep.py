"""Keep a text: cut it into chunks of at most 1,024 tokens, index a point for each, with ids derived from the
memory's, and have them embedded afterwards."""

import asyncio
import hashlib
import threading
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec
from semantic_text_splitter import TextSplitter

from cadre.protocol.messages import MemoryScope
from cadre_memory.bm25 import encode_document
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import Chunk, EmbedState, Vectors
from cadre_memory.operations.expiry import ErasureListener
from cadre_memory.operations.search import Searcher
from cadre_memory.operations.writing import Sweeper, Writer

_NAMES = UUID("6f1f6d5b-6b0f-5e2c-9d5a-4f0c4b7f3f11")


class About(NamedTuple):
    """Facts about a memory in addition to its text and its owner."""

    scope: MemoryScope
    kind: str
    step: int
    created_at: float
    """The time when it was remembered, Unix seconds."""
    expires_at: float | None
    """The time when it expires, Unix seconds; None: never."""


def chunk_id(memory: str, index: int) -> str:
    """Return the UUID of a chunk. It is derived, so a text that is stored twice under one id is stored once."""
    return str(uuid5(_NAMES, f"{memory}/{index}"))


def content_hash(text: str) -> str:
    """Return the SHA-256 of the text with every run of blanks as one, and none at its ends."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def chunks_of(
    texts: list[str], memory: str, caller: Caller, about: About, embed_state: EmbedState = "lexical"
) -> list[Chunk]:
    """Return the points of one memory, made of the pieces of its text."""
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
    """Return those fields of the chunk that a struct in which it is shown has too."""
    return {field: getattr(chunk, field) for field in shown.__struct_fields__ if hasattr(chunk, field)}


CHUNK_TOKENS = 1024
OVERLAP_TOKENS = 10

_TOKENIZER = "gpt-4o"
"""Its table is inside the splitter: nothing is downloaded."""

_splitting = threading.Lock()


class Workers(NamedTuple):
    """The parts of the service that calls go through."""

    writer: Writer
    searcher: Searcher
    sweeper: Sweeper | None
    erasures: ErasureListener


async def keep_text(text: str, memory: str, caller: Caller, about: About, workers: Workers) -> int:
    """Store the text under the id `memory` and return in how many chunks; 0 for blanks alone, which are not stored.

    They are durable then. The first chunk is stored last: where it is, all are. Raises what the index raises.
    """
    texts = await asyncio.to_thread(split_text, text)
    if not texts:
        return 0
    state: EmbedState = "lexical" if workers.sweeper is None else "pending"
    chunks = chunks_of(texts, memory, caller, about, state)
    await workers.writer.store([(chunk, await _sparse_only(chunk)) for chunk in reversed(chunks)])
    await workers.erasures.forget_if_erased(caller.tree)
    if workers.sweeper is not None:
        workers.sweeper.wake()
    return len(chunks)


async def keep_chunks(chunks: list[Chunk], workers: Workers) -> None:
    """Store the points of an export, last chunks first. Raises what the index raises."""
    ordered = sorted(chunks, key=lambda chunk: -chunk.index)
    await workers.writer.store([(chunk, await _sparse_only(chunk)) for chunk in ordered])
    for tree in {chunk.tree for chunk in chunks}:
        await workers.erasures.forget_if_erased(tree)
    if workers.sweeper is not None:
        workers.sweeper.wake()


async def _sparse_only(chunk: Chunk) -> Vectors:
    sparse = encode_document(chunk.text)
    # Some milliseconds each: a long text lets others in between.
    await asyncio.sleep(0)
    return Vectors(sparse, [])


def split_text(text: str) -> list[str]:
    """Return the pieces: none for blanks alone, else at least one. Takes about a second the first time."""
    with _splitting:
        return _splitter().chunks(text)


@cache
def _splitter() -> TextSplitter:
    # About a second: the table of tokens is unpacked.
    return TextSplitter.from_tiktoken_model(_TOKENIZER, CHUNK_TOKENS, overlap=OVERLAP_TOKENS)
