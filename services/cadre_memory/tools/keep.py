"""Store a text: cut it into chunks of at most 1,024 tokens, index them, and have them embedded afterwards."""

import asyncio
import threading
from functools import cache
from typing import NamedTuple

from semantic_text_splitter import TextSplitter

from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import Chunk, EmbedState, Vectors
from cadre_memory.operations.embed_pending import Sweeper
from cadre_memory.operations.expiry import ErasureListener
from cadre_memory.operations.search import Searcher
from cadre_memory.operations.writer import Writer
from cadre_memory.text.bm25 import encode_document
from cadre_memory.tools.chunks import About, chunks_of

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
    """Stores the text under the id `memory` and returns in how many chunks; 0 for blanks alone, which are not stored.

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
    """Stores the points of an export, last chunks first. Raises what the index raises."""
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
    """Returns the pieces: none for blanks alone, else at least one. Takes about a second the first time."""
    with _splitting:
        return _splitter().chunks(text)


@cache
def _splitter() -> TextSplitter:
    # About a second: the table of tokens is unpacked.
    return TextSplitter.from_tiktoken_model(_TOKENIZER, CHUNK_TOKENS, overlap=OVERLAP_TOKENS)
