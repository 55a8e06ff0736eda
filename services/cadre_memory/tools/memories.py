"""What is done for a caller: remember, recall, forget, each within what `scoping` lets it reach."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import msgspec

from cadre.protocol.memory import Recalled, RecalledHit
from cadre.protocol.messages import ErrorInfo
from cadre_memory.index import scopes
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import Chunk, EmbedState, Hit, Index, Vectors, Where
from cadre_memory.text.bm25 import encode_document
from cadre_memory.text.chunking import split_text
from cadre_memory.tools.cards import ARGUMENTS, Arguments, Forget, Recall, Remember
from cadre_memory.tools.chunks import About, chunks_of
from cadre_memory.work.embed_pending import Sweeper
from cadre_memory.work.expiry import Mourning
from cadre_memory.work.search import Searcher
from cadre_memory.work.writer import Writer

_SHOWN = 300


class InvalidCall(Exception):
    """The arguments are not what the tool takes; the caller's model reads why."""

    def as_error(self) -> ErrorInfo:
        return ErrorInfo("AgentToolCallError", str(self))


class Workers(NamedTuple):
    """Who does the parts of it."""

    writer: Writer
    searcher: Searcher
    sweeper: Sweeper | None
    mourning: Mourning


class Memories:
    """`keep` is in seconds, 0 for ever."""

    def __init__(self, index: Index, workers: Workers, keep: float) -> None:
        self._index = index
        self._writer, self._searcher, self._sweeper, self._mourning = workers
        self._keep = keep

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller, at: float, now: float) -> Any:
        """The tool's output. `at` is when the call was made.

        Raises InvalidCall, and what the index raises.
        """
        match parsed(tool, arguments):
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
            at=at,
            expires_at=at + self._keep if self._keep else None,
            state=state,
        )
        chunks = chunks_of(texts, caller, about)
        await self._writer.store([(chunk, await _words(chunk)) for chunk in chunks])
        await self._mourning.forget_if_erased(caller.tree)
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
        hits = [_shown(hit) for hit in found.hits]
        return msgspec.to_builtins(Recalled(hits=hits, degraded=found.degraded, why=found.why))


def parsed(tool: str, arguments: dict[str, Any]) -> Arguments:
    """Raises InvalidCall."""
    try:
        return msgspec.convert(arguments, ARGUMENTS[tool])
    except msgspec.ValidationError as error:
        shown = msgspec.json.encode(arguments).decode()[:_SHOWN]
        raise InvalidCall(f"Invalid call of tool {tool!r} with arguments {shown}: {error}") from error


async def _words(chunk: Chunk) -> Vectors:
    sparse = encode_document(chunk.text)
    # Some milliseconds each: a long text lets others in between.
    await asyncio.sleep(0)
    return Vectors(sparse, [])


def _shown(hit: Hit) -> RecalledHit:
    chunk = hit.chunk
    return RecalledHit(
        id=chunk.id,
        memory=chunk.memory,
        text=chunk.text,
        score=hit.score,
        scope=chunk.scope,
        agent=chunk.agent,
        run=chunk.run,
        step=chunk.step,
        kind=chunk.kind,
        at=chunk.created_at,
    )
