"""Makes the index anew from the journals, beside the one that goes on serving."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cadre.adapters.nats.reading.tail import OnEntry, OnLifecycle, Read, Tail
from cadre.api.directory import IndexBuilding, IndexRebuild, IndexState
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import CadreError, RunIndexUnavailable
from cadre.ports import Clock
from cadre.protocol.messages import Erased, Lifecycle
from cadre_gateway.index.run_index import RunIndex, apply_erasure, apply_import, apply_read
from cadre_gateway.requests.problems import Problem

log = logging.getLogger("cadre.gateway")


@dataclass
class IndexRebuilder:
    """One rebuild at a time; the lists stay as they are until it is whole."""

    new_reader: Callable[[OnEntry, OnLifecycle], Tail]
    index: RunIndex
    tail: Tail
    clock: Clock
    _task: asyncio.Task[None] | None = None
    _reader: Tail | None = None
    _last: IndexRebuild | None = field(default=None)

    async def state(self) -> IndexState:
        """What is in the index, and how far a rebuild has come. Raises RunIndexUnavailable."""
        if self._last is not None and self._last.state == "running" and self._reader is not None:
            self._last.read, self._last.of = sum(self._reader.positions), sum(self.tail.positions)
        progress = self.index.progress
        return IndexState(
            runs=await self.index.size(),
            bytes=await self.index.bytes(),
            positions=self.index.positions,
            building=IndexBuilding(read=progress.read, of=progress.of) if progress is not None else None,
            rebuild=self._last,
        )

    async def begin(self) -> IndexRebuild:
        """Begin to make it again. Raise a 409 problem while that goes on, RunIndexUnavailable while
        the index fails."""
        if self.index.failure is not None:
            raise RunIndexUnavailable(str(self.index.failure))
        if self.index.progress is not None or (self._task is not None and not self._task.done()):
            raise Problem(
                409, "rebuilding", "the index is being made anew already: GET /v1/index tells how far"
            )
        self._last = IndexRebuild(state="running", started_at=self.clock.now())
        self._task = asyncio.create_task(self._run(self._last), name="rebuild")
        return self._last

    async def stop(self) -> None:
        """Gives up what goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, told: IndexRebuild) -> None:
        fresh = None
        try:
            fresh = await self.index.beside()
            await self._fill(fresh)
            told.state = "done"
            log.info("the index was made anew from the journals")
        except (CadreError, OSError) as error:
            told.state, told.error = "failed", str(error)
            log.error("the index could not be made anew: %s", error)
        finally:
            told.ended_at = self.clock.now()
            if told.state == "running":
                told.state = "failed"
            if fresh is not None and not fresh.is_closed:
                await fresh.close()

    async def _fill(self, fresh: RunIndex) -> None:
        async def on_entry(read: Read) -> None:
            await apply_read(fresh, read)

        async def on_lifecycle(seq: int, lifecycle: Lifecycle) -> None:
            if isinstance(lifecycle, Erased):
                await apply_erasure(fresh, seq, lifecycle)
            else:
                await apply_import(fresh, seq, lifecycle.tree)

        self._reader = reader = self.new_reader(on_entry, on_lifecycle)

        async def caught_up(positions: Sequence[int]) -> None:
            await retry(lambda: reader.read_on(positions), pauses=EVERY_SECOND, log=log)

        async def all_read(positions: Sequence[int]) -> None:
            await caught_up(positions)
            await reader.stop()  # what it reads from here on is the other one's

        async def fill() -> None:
            # Most of it while the other goes on; the rest takes a moment.
            await caught_up(self.tail.positions)
            await self.index.adopt(fresh, all_read)

        reader.start()
        fresh.positions_read = lambda: reader.positions
        filling, failing = asyncio.create_task(fill()), asyncio.create_task(reader.failed())
        try:
            await asyncio.wait({filling, failing}, return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                failing.result()
            await filling
        finally:
            filling.cancel()
            failing.cancel()
            await asyncio.gather(filling, failing, return_exceptions=True)
            await reader.stop()
