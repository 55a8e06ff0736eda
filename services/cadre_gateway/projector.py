"""Take what is read from the streams to the index and to the ledger; save the ledger to the object store, for its sums
outlive their runs; make the index again from the journals, while the old one goes on serving."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from cadre.adapters.nats.object_store import NatsSnapshots
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.reading.tail import OnEntry, OnLifecycle, Read, Tail
from cadre.api.directory import IndexBuilding, IndexRebuild, IndexState
from cadre.api.runs import RunSummary
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import CadreError, RunIndexUnavailable
from cadre.journal.events import RunAccepted
from cadre.ports import Clock
from cadre.protocol.messages import Erased, Lifecycle
from cadre.protocol.topology import Topology
from cadre.recent import Recent
from cadre.views.run_summary import summary_of_task
from cadre_gateway.index.run_index import RunIndex, apply_erasure, apply_import, apply_read
from cadre_gateway.index.tree_record import EntryStatus
from cadre_gateway.index.usage_ledger import SavedLedger, UsageLedger
from cadre_gateway.requests.problems import Problem
from cadre_gateway.retention import Janitor

log = logging.getLogger("cadre.gateway")

_PAUSE_SECONDS = 1.0

_KNOWN_ROOTS = 4_000


@dataclass(frozen=True)
class LedgerFeed:
    """Counts in the ledger what the live tail reads. It needs no index: the task of a tree's root says the person the
    tree works for."""

    ledger: UsageLedger
    history: History
    _roots: Recent[str, RunSummary | None] = field(default_factory=lambda: Recent(_KNOWN_ROOTS))

    async def on_entry(self, read: Read) -> None:
        """Count an entry that can be read and was written here."""
        if read.stored is None:
            return
        entry = read.stored.entry
        for event in entry.events:
            if isinstance(event, RunAccepted) and entry.run == entry.tree:
                self._roots[read.tree] = summary_of_task(event.task)
        if not read.imported and not self.ledger.has(read.shard, read.seq):
            self.ledger.add(read.shard, read.seq, read.at, entry, await self._root(read.tree))

    async def _root(self, tree: str) -> RunSummary | None:
        if tree not in self._roots:
            self._roots[tree] = await retry(lambda: self._read_root(tree), pauses=EVERY_SECOND, log=log)
        self._roots.move_to_end(tree)
        return self._roots[tree]

    async def _read_root(self, tree: str) -> RunSummary | None:
        task = await self.history.root_task(tree)
        return summary_of_task(task) if task is not None else None


@dataclass(frozen=True)
class Projector:
    """Takes what the tail of the index reads to the index and the janitor."""

    index: RunIndex
    janitor: Janitor

    async def on_entry(self, read: Read) -> None:
        """Take in an entry or a workspace file, also one that cannot be read, or a task.

        Waits for an index that fails."""
        await self._patiently(lambda: self._take(read))

    async def on_lifecycle(self, seq: int, lifecycle: Lifecycle) -> None:
        """Take in that a tree was erased or imported, by the record at `seq`; waits for an index that fails."""
        await self._patiently(lambda: self._take_lifecycle(seq, lifecycle))

    async def _patiently(self, take: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await take()
            except RunIndexUnavailable as error:
                # The code that saves changes warns of it.
                log.debug("the index takes nothing in: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _take(self, read: Read) -> None:
        applied = await apply_read(self.index, read)
        if applied.status is EntryStatus.LATE:
            self.janitor.wake()
        elif applied.ended_at is not None:
            self.janitor.note_end(applied.ended_at)

    async def _take_lifecycle(self, seq: int, lifecycle: Lifecycle) -> None:
        if isinstance(lifecycle, Erased):
            await self.janitor.note_erasure(seq, lifecycle)
        else:
            await apply_import(self.index, seq, lifecycle.tree)


class LedgerImage(msgspec.Struct, kw_only=True):
    """The ledger as it is saved."""

    v: Literal[1] = 1
    streams: list[str]
    """Creation time of each shard's stream; new shards are appended."""
    ledger: SavedLedger


class LedgerSnapshots:
    """Loads the ledger once, and saves it. It cannot be rebuilt as the index can: the runs may be gone."""

    def __init__(self, images: NatsSnapshots, topology: Topology, streams: list[str]) -> None:
        self._images = images
        self._name = f"ledger-{topology.prefix}"
        self.streams = streams
        self._saved: list[int] | None = None
        self._saves = True

    async def load(self) -> UsageLedger:
        """Return the ledger that was saved last. Raises BusUnavailable: a gateway that began without it would overwrite
        it with too little.
        """
        data = await self._images.load(self._name)
        nothing = [0] * len(self.streams)
        if data is None:
            return UsageLedger(SavedLedger(positions=nothing))
        try:
            image = msgspec.json.decode(zlib.decompress(data), type=LedgerImage)
        except (zlib.error, msgspec.DecodeError) as error:
            # It may be of a newer gateway, which goes on with it.
            log.error(
                "the saved ledger is unusable (%s): this gateway counts what journals there are, and saves none",
                error,
            )
            self._saves = False
            return UsageLedger(SavedLedger(positions=nothing))
        # A stream that was created again has nothing in it that is counted.
        known = dict(zip(image.streams, image.ledger.positions, strict=True))
        image.ledger.positions = [known.get(stream, 0) for stream in self.streams]
        return UsageLedger(image.ledger)

    async def save(self, ledger: UsageLedger) -> None:
        """Save the ledger unless nothing was counted since. Raises BusUnavailable."""
        if not self._saves or ledger.positions == self._saved:
            return
        saved = ledger.to_saved()
        data = msgspec.json.encode(LedgerImage(streams=self.streams, ledger=saved))
        await self._images.save(self._name, await asyncio.to_thread(zlib.compress, data, 1))
        self._saved = saved.positions


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
        """Return what is in the index, and how far a rebuild has come. Raises RunIndexUnavailable."""
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
            raise Problem(409, "rebuilding", "the index is being rebuilt already: GET /v1/index shows the progress")
        self._last = IndexRebuild(state="running", started_at=self.clock.now())
        self._task = asyncio.create_task(self._run(self._last), name="rebuild")
        return self._last

    async def stop(self) -> None:
        """Give up what goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, told: IndexRebuild) -> None:
        fresh = None
        try:
            fresh = await self.index.beside()
            await self._fill(fresh)
            told.state = "done"
            log.info("the index was rebuilt from the journals")
        except (CadreError, OSError) as error:
            told.state, told.error = "failed", str(error)
            log.error("the index could not be rebuilt: %s", error)
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
            await reader.stop()  # from here on the other one reads

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
