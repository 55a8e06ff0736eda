"""Remembers, recalls, forgets and searches files for a caller, each within what `scopes` lets it reach."""

from typing import Any

import msgspec

from cadre.protocol.memory import RESOURCE, Recalled, RecalledHit
from cadre.protocol.messages import ErrorInfo
from cadre_memory.index import scopes
from cadre_memory.index.memory_index import MemoryIndex
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import ScoredChunk, Where
from cadre_memory.tools.cards import ARGUMENTS, Arguments, Forget, QueryResources, Recall, Remember
from cadre_memory.tools.chunks import About, same_fields
from cadre_memory.tools.keep import Workers, keep_text
from cadre_memory.tools.resources import ResourceSearch

_SHOWN_CHARS = 300
"""How much of wrong arguments an error shows."""


class InvalidCall(Exception):
    """The arguments are not what the tool takes; the caller's model reads why."""

    def as_error(self) -> ErrorInfo:
        """Returns the error that the run gets."""
        return ErrorInfo("invalid-call", str(self))


class Memories:
    """Serves the tools. Memories are kept for `keep_seconds`; 0: for ever."""

    def __init__(
        self, index: MemoryIndex, workers: Workers, resources: ResourceSearch, keep_seconds: float
    ) -> None:
        self._index = index
        self._workers = workers
        self._resources = resources
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
            case QueryResources() as wanted:
                return await self._resources.query(wanted, caller, now)

    async def _remember(self, wanted: Remember, caller: Caller, at: float) -> dict[str, Any]:
        about = About(
            scope=scopes.writing(caller),
            kind=wanted.kind,
            step=caller.step if wanted.step is None else wanted.step,
            created_at=at,
            expires_at=at + self._keep_seconds if self._keep_seconds else None,
        )
        chunks = await keep_text(wanted.text, caller.call, caller, about, self._workers)
        if not chunks:
            raise InvalidCall("the text to remember holds nothing but blanks")
        return {"memory": caller.call, "chunks": chunks, "scope": about.scope}

    async def _recall(self, wanted: Recall, caller: Caller, now: float) -> Any:
        within = scopes.reading(caller, now)
        if not within.any_of:
            why = "this agent may recall from no scope: see `memory.reads` in its spec"
            return msgspec.to_builtins(Recalled(hits=[], degraded=False, why=why))
        where = Where(kinds=wanted.kinds or [], other_than=[RESOURCE])
        found = await self._workers.searcher.search(wanted.query, within, where, wanted.k, wanted.min_score)
        hits = [recalled_hit(hit) for hit in found.hits]
        return msgspec.to_builtins(Recalled(hits=hits, degraded=found.degraded, why=found.why))


def parse_arguments(tool: str, arguments: dict[str, Any]) -> Arguments:
    """Returns the arguments of a call of a tool. Raises InvalidCall."""
    try:
        return msgspec.convert(arguments, ARGUMENTS[tool])
    except msgspec.ValidationError as error:
        shown = msgspec.json.encode(arguments).decode()[:_SHOWN_CHARS]
        raise InvalidCall(f"Invalid call of tool {tool!r} with arguments {shown}: {error}") from error


def recalled_hit(hit: ScoredChunk) -> RecalledHit:
    """Returns the hit as an agent recalls it."""
    return RecalledHit(**same_fields(hit.chunk, RecalledHit), score=hit.score, at=hit.chunk.created_at)
