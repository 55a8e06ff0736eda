"""Remembers, recalls and forgets for a caller, each within what `scopes` lets it reach."""

import asyncio
from typing import Any, NamedTuple

import msgspec

from cadre.protocol.memory import Recalled, RecalledHit
from cadre.protocol.messages import ErrorInfo
from cadre_memory.index import scopes
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import Chunk, EmbedState, ScoredChunk, Vectors, Where
from cadre_memory.text.bm25 import encode_document
from cadre_memory.text.chunking import split_text
from cadre_memory.tools.cards import ARGUMENTS, Arguments, Forget, Recall, Remember
from cadre_memory.tools.chunks import About, chunks_of, same_fields
from cadre_memory.work.embed_pending import Sweeper
from cadre_memory.work.expiry import ErasureListener
from cadre_memory.work.search import Searcher
from cadre_memory.work.writer import Writer

_SHOWN_CHARS = 300
"""How much of wrong arguments an error shows."""


class InvalidCall(Exception):
    """The arguments are not what the tool takes; the caller's model reads why."""

    def as_error(self) -> ErrorInfo:
        """Returns the error that the run gets."""
        return ErrorInfo("AgentToolCallError", str(self))


class Workers(NamedTuple):
    """The parts of the service that calls go through."""

    writer: Writer
    searcher: Searcher
    sweeper: Sweeper | None
    erasures: ErasureListener


class Memories:
    """Serves the three tools. Memories are kept for `keep_seconds`; 0: for ever."""

    def __init__(self, index: MemoryIndex, workers: Workers, keep_seconds: float) -> None:
        self._index = index
        self._writer, self._searcher, self._sweeper, self._erasures = workers
        self._keep_seconds = keep_seconds

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller, at: float, now: float) -> Any:
        """Returns the tool's output. `at` is when the call was made, Unix seconds.

        Raises InvalidCall, and what the index raises.
        """
        match parse_arguments(tool, arguments):
            case Remember() as wanted:
                return await self._remember(wanted, caller, min(at, now) if at > 0 else now)
            case Recall() as wanted:
                return await self._recall(wanted, caller, now)
            case Forget(memory=memory):
                within = scopes.forgetting(caller)
                return {"forgotten": await self._index.delete(within=within, where=Where(memory=memory))}

    async def _remember(self, wanted: Remember, caller: Caller, at: float) -> dict[str, Any]:
        texts = await asyncio.to_thread(split_text, wanted.text)
        if not texts:
            raise InvalidCall("the text to remember holds nothing but blanks")
        state: EmbedState = "lexical" if self._sweeper is None else "pending"
        about = About(
            scope=scopes.writing(caller),
            kind=wanted.kind,
            step=caller.step if wanted.step is None else wanted.step,
            created_at=at,
            expires_at=at + self._keep_seconds if self._keep_seconds else None,
            embed_state=state,
        )
        chunks = chunks_of(texts, caller, about)
        await self._writer.store([(chunk, await _sparse_only(chunk)) for chunk in chunks])
        await self._erasures.forget_if_erased(caller.tree)
        if self._sweeper is not None:
            self._sweeper.wake()
        return {"memory": caller.call, "chunks": len(chunks), "scope": about.scope}

    async def _recall(self, wanted: Recall, caller: Caller, now: float) -> Any:
        within = scopes.reading(caller, now)
        if not within.any_of:
            why = "this agent may recall from no scope: see `memory.reads` in its spec"
            return msgspec.to_builtins(Recalled(hits=[], degraded=False, why=why))
        found = await self._searcher.search(
            wanted.query, within, Where(kinds=wanted.kinds or []), wanted.k, wanted.min_score
        )
        hits = [recalled_hit(hit) for hit in found.hits]
        return msgspec.to_builtins(Recalled(hits=hits, degraded=found.degraded, why=found.why))


def parse_arguments(tool: str, arguments: dict[str, Any]) -> Arguments:
    """Returns the arguments of a call of a tool. Raises InvalidCall."""
    try:
        return msgspec.convert(arguments, ARGUMENTS[tool])
    except msgspec.ValidationError as error:
        shown = msgspec.json.encode(arguments).decode()[:_SHOWN_CHARS]
        raise InvalidCall(f"Invalid call of tool {tool!r} with arguments {shown}: {error}") from error


async def _sparse_only(chunk: Chunk) -> Vectors:
    sparse = encode_document(chunk.text)
    # Some milliseconds each: a long text lets others in between.
    await asyncio.sleep(0)
    return Vectors(sparse, [])


def recalled_hit(hit: ScoredChunk) -> RecalledHit:
    """Returns the hit as an agent recalls it."""
    return RecalledHit(**same_fields(hit.chunk, RecalledHit), score=hit.score, at=hit.chunk.created_at)
