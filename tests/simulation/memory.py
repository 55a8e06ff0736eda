"""The memory service of a world: an index that outlives its processes, and the way to it.

The service's own code handles the calls and decides who sees what; the engine behind it is a dict, and searches by
nothing but time.
"""

from __future__ import annotations

import asyncio
from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec

from cadre.errors import BusUnavailable, OutcomeUnknown
from cadre.protocol.memory import Recalled
from cadre.protocol.messages import MemoryScope, Origin
from cadre_memory.index import scopes
from cadre_memory.index.scopes import Caller
from cadre_memory.index.vector_index import (
    Chunk,
    PointSelector,
    ScoredChunk,
    Within,
    admits,
    condition_of,
    payload,
)
from cadre_memory.tools.keep import About, chunks_of
from cadre_memory.tools.memories import Recall, Remember, parse_arguments, recalled_hit
from simulation.wire import Wire

if TYPE_CHECKING:
    from simulation.world import World


_OLD_SCOPES: tuple[MemoryScope, ...] = ("agent", "user", "team")


class Recollections:
    """The index of a world: points by id, as an engine has them; some are older than the world."""

    def __init__(self, agents: list[str]) -> None:
        self.points: dict[str, Chunk] = {}
        for number, (agent, scope) in enumerate(product(agents, _OLD_SCOPES)):
            run = f"old{number}"
            origin = Origin(user="ada", team="house", writes=scope)
            caller = Caller(agent=agent, tree=run, run=run, call=f"{run}_1_0", step=1, origin=origin)
            about = About(scope=scope, kind="note", step=1, created_at=1.0, expires_at=None)
            self.store(chunks_of([f"What {agent} has found out."], caller.call, caller, about))

    def store(self, chunks: list[Chunk]) -> None:
        self.points.update((chunk.id, chunk) for chunk in chunks)

    def search(self, within: Within, k: int) -> list[Chunk]:
        seen = condition_of(PointSelector(within=within))
        found = [one for one in self.points.values() if admits(seen, one.id, payload(one))]
        return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)[:k]

    def user_of(self, run: str) -> str:
        """For whom the run was that has left something."""
        return next(one.user for one in self.points.values() if one.run == run)

    def of(self, call: str) -> list[Chunk]:
        """Return what one call has left."""
        return [one for one in self.points.values() if one.memory == call]


class SimMemories:
    """cadre_memory.memories.Memories on that index: slow, and at times without an answer."""

    def __init__(self, world: World, wire: Wire) -> None:
        self.index, self._wire, self._chance = world.recollections, wire, world.chance
        self._faults = world.faults
        self._seconds = world.scenario.memory_seconds

    async def call(self, tool: str, arguments: dict[str, Any], caller: Caller, at: float, now: float) -> Any:
        await asyncio.sleep(self._chance.random() * self._seconds)
        match parse_arguments(tool, arguments):
            case Remember() as wanted:
                chunks = self.chunks(wanted, caller, at)
                await self._store(chunks)
                return {"memory": caller.call, "chunks": 1, "scope": chunks[0].scope}
            case Recall() as asked:
                within = scopes.reading(caller, now)
                found = await self._wire.ask("searching", lambda: self.index.search(within, asked.k), BusUnavailable)
                hits = [recalled_hit(ScoredChunk(chunk, 1.0)) for chunk in found]
                return msgspec.to_builtins(Recalled(hits=hits, degraded=False, why=""))

    async def _store(self, chunks: list[Chunk]) -> None:
        if self._faults.happens("engine-silent"):
            if self._chance.random() < 0.3:
                self.index.store(chunks)
            raise OutcomeUnknown("storing a memory", "the engine says nothing")
        await self._wire.ask("storing a memory", lambda: self.index.store(chunks), OutcomeUnknown)

    def chunks(self, wanted: Remember, caller: Caller, at: float) -> list[Chunk]:
        about = About(
            scope=scopes.writing(caller),
            kind=wanted.kind,
            step=wanted.step or 0,
            created_at=at,
            expires_at=None,
        )
        return chunks_of([wanted.text], caller.call, caller, about)
