"""Removes runs: each tree some time after its end, at once on demand, and what comes late for one that is gone.

Every gateway has a janitor and all of them do the same. The first one records the tree's lifecycle; the others read
the record and finish the removal, should the first one die over it.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Container, Iterable
from functools import partial
from typing import Protocol

from cadre.adapters.nats.blobs import YOUNG_SECONDS
from cadre.adapters.nats.erasure import LIFECYCLE_SECONDS, Belongings
from cadre.errors import BusFull, CadreError, Fenced
from cadre.ports import Clock
from cadre.protocol.kept import KeptFile
from cadre.protocol.messages import Erased, Lifecycle
from cadre_gateway.index.database.port import SqlQuery
from cadre_gateway.index.run_index import PendingErasure, RunIndex, apply_erasure

log = logging.getLogger("cadre.janitor")


class Erasure(Protocol):
    """Removes trees from the streams: see NatsErasure. Every method raises RetryableError."""

    async def lifecycle(self, tree: str) -> tuple[int, Lifecycle] | None: ...
    async def record(self, lifecycle: Lifecycle, fence: int) -> int: ...
    async def forget_pushes(self, tree: str) -> None: ...
    async def leave_session(self, agent: str, session: str, user: str | None, run: str) -> None: ...
    async def belongings(self, tree: str, before: int) -> Belongings: ...
    async def make_room(self, tree: str) -> bool: ...
    async def has_task(self, tree: str) -> bool: ...
    async def awaited(self, besides: str) -> set[str]: ...
    async def drop_exchanges(self, tasks: Iterable[str]) -> None: ...
    async def drop_letters(self, tree: str, messages: set[int]) -> None: ...
    async def gone_files(self) -> list[KeptFile]: ...
    async def forget_file(self, file: KeptFile) -> None: ...
    async def remove_blob(self, ref: str, unless_put_since: float | None) -> bool: ...
    async def purge(self, tree: str, before: int) -> None: ...
    async def sweep(self) -> None: ...


_REST_FACTOR = 19
"""After a removal the janitor rests for its duration times this factor: the streams are there for work."""

_MAX_REST_SECONDS = 30.0
"""The longest rest: on a slow machine, or with a slow bus, what is due must not wait for minutes."""

_FAILURE_PAUSE_SECONDS = 5.0
"""Longer with every failure in a row."""

_START_SECONDS = 3600.0
"""Seconds after which the files of a run that has not begun belong to no run, unless its task is waiting."""

_SWEEP_SECONDS = 3600.0
"""Seconds between two searches for blobs that killed writers have left behind, and for queues of retired services."""

_MAX_WAIT_SECONDS = 3600.0
"""Seconds after which the time of day is read again: it may have been set."""

_FIRST_UNSTARTED = SqlQuery(
    "SELECT tree, unstarted_at FROM trees WHERE unstarted_at IS NOT NULL ORDER BY unstarted_at LIMIT 1"
)
_FIRST_ENDED = SqlQuery("SELECT tree, ended_at FROM trees WHERE ended_at IS NOT NULL ORDER BY ended_at LIMIT 1")

Work = Callable[[], Awaitable[None]]


class Janitor:
    """Removes what is due, one thing after the other.

    `keep` is in seconds, 0 for ever. `read_on` returns once the index accounts for what is in the streams at this
    moment, or raises RetryableError. `in_use` are blobs that live services will name. `sweep_queues` removes the queues
    that retired services have left behind.
    """

    def __init__(  # noqa: PLR0913 - most by name
        self,
        index: RunIndex,
        erasure: Erasure,
        clock: Clock,
        *,
        keep: float,
        read_on: Callable[[], Awaitable[None]],
        in_use: Callable[[], Container[str]] = frozenset,
        sweep_queues: Work,
    ) -> None:
        self._index = index
        self._removals = index.removals
        self._erasure = erasure
        self._clock = clock
        self._keep = keep
        self._read_on = read_on
        self._in_use = in_use
        self._sweep_queues = sweep_queues
        self._news = asyncio.Event()
        self._sweep_at = 0.0
        self._sleeps_until = 0.0

    def wake(self) -> None:
        """Have the janitor look again: something may have become due."""
        self._news.set()

    def note_end(self, at: float) -> None:
        """Take note that a tree has ended at `at` (Unix seconds): it may be the first to go."""
        if self._keep and at + self._keep < self._sleeps_until:
            self.wake()

    async def run(self) -> None:
        """Remove what is due, one thing after the other, and sleep until the next is due."""
        failures = 0
        while True:
            self._news.clear()
            # A run that ends while the index is read counts as news: the reading may have missed it.
            self._sleeps_until = math.inf
            now = self._clock.now()
            try:
                due, work = await self._next()
                if due > now:
                    await self._wait(min(due - now, _MAX_WAIT_SECONDS))
                    continue
                await work()
            except CadreError as error:
                failures += 1
                pause = min(_FAILURE_PAUSE_SECONDS * failures, _MAX_WAIT_SECONDS)
                log.warning("removing goes on in %g s: %s", pause, error)
                await self._clock.sleep(pause)
            else:
                failures = 0
                await self._clock.sleep(min((self._clock.now() - now) * _REST_FACTOR, _MAX_REST_SECONDS))

    async def erase(self, tree: str, *, expired: bool = False) -> None:
        """Remove a tree that has ended: its blobs, its messages, and its place in lists and sessions.

        If it has `expired`, blobs that were put within the last hour go later. Raises RetryableError: once the record
        is written the removal continues in the background. In a full store the tree itself makes the room for the
        record.
        """
        while True:
            try:
                await self._begin(tree, expired)
                break
            except BusFull:
                if not await self._erasure.make_room(tree):
                    raise
        erasure = self._removals.pending_erasures.get(tree)
        if erasure is not None:
            await self._finish(erasure)

    async def _begin(self, tree: str, expired: bool) -> None:
        root = await self._index.get(tree, tree)
        if root is not None and root.session is not None:
            await self._erasure.leave_session(root.agent, root.session, root.user, tree)
        await self._erasure.forget_pushes(tree)
        await self.note_erasure(*await self._record(tree, expired))

    async def note_erasure(self, seq: int, lifecycle: Erased) -> None:
        """Take in that a tree was erased, here or elsewhere, with the record at `seq`. Raises RunIndexUnavailable."""
        if await apply_erasure(self._index, seq, lifecycle):
            self.wake()

    # --- what is next

    async def _next(self) -> tuple[float, Work]:
        """Return when the next work is due (Unix seconds), and the work."""
        removals = self._removals
        found: list[tuple[float, Work]] = [(self._sweep_at, self._sweep)]
        if removals.late_trees:
            found.append((0.0, self._remove_late))
        if removals.pending_erasures:
            first = min(removals.pending_erasures.values(), key=lambda one: one.due)
            found.append((first.due, lambda: self._finish(first)))
        if removals.postponed_blobs:
            found.append((min(removals.postponed_blobs.values()), self._remove_postponed))
        for tree, at in await self._index.read(_FIRST_UNSTARTED):
            found.append((at + _START_SECONDS, partial(self._remove_unstarted, tree)))
        for tree, at in await self._index.read(_FIRST_ENDED) if self._keep else ():
            found.append((at + self._keep, partial(self._expire, tree)))
        return min(found, key=lambda one: one[0])

    async def _wait(self, seconds: float) -> None:
        self._sleeps_until = self._clock.now() + seconds
        asleep = asyncio.ensure_future(self._clock.sleep(seconds))
        woken = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({asleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asleep.cancel()
            woken.cancel()

    # --- the work

    async def _expire(self, tree: str) -> None:
        await self.erase(tree, expired=True)
        log.info("run %s is removed: it ended %g days ago or more", tree, self._keep / 86400)

    async def _sweep(self) -> None:
        # First, so that a sweep that fails keeps nothing else waiting.
        self._sweep_at = self._clock.now() + _SWEEP_SECONDS
        await self._index.drop_tombstones(self._clock.now() - LIFECYCLE_SECONDS)
        await self._sweep_queues()
        await self._drop_kept_files()
        await self._erasure.sweep()

    async def _drop_kept_files(self) -> None:
        """Remove the contents of kept files that are gone, then their records: a repetition must find the names."""
        for file in await self._erasure.gone_files():
            await self._remove_blobs([file.ref], "", spare_young=True)
            if file.ref not in self._removals.postponed_blobs:
                await self._erasure.forget_file(file)

    async def _remove_late(self) -> None:
        """Remove what came late for a tree that is gone, like the tree itself."""
        tree, seq = next(iter(self._removals.late_trees.items()))
        if not await self._erasure.has_task(tree):
            log.info("run %s is gone: what came late for it is removed", tree)
            await self._remove(PendingErasure(tree, seq + 1, 0.0, True))
        if self._removals.late_trees.get(tree) == seq:
            del self._removals.late_trees[tree]

    async def _remove_unstarted(self, tree: str) -> None:
        """Remove the files of a run whose task never came."""
        has_task = await self._erasure.has_task(tree)
        async with self._index.changing(tree) as found:
            record = found.record
            if record.unstarted_at is not None and not has_task:
                log.info("run %s has files and was never begun: they are removed", tree)
                before = record.last + 1
                self._removals.pending_erasures[tree] = PendingErasure(tree, before, 0.0, True, found.forget())
            found.note_started()

    async def _finish(self, erasure: PendingErasure) -> None:
        await self._remove(erasure)
        if self._removals.pending_erasures.get(erasure.tree) is erasure:
            del self._removals.pending_erasures[erasure.tree]

    async def _remove(self, erasure: PendingErasure) -> None:
        """Remove what messages name before the messages themselves: a repetition must find the names."""
        tree, before = erasure.tree, erasure.before
        found = await self._erasure.belongings(tree, before)
        if not found.messages:
            return
        await self._erasure.drop_letters(tree, found.messages)
        if found.exchanges:
            await self._erasure.drop_exchanges(found.exchanges)
        named = (found.named | set(erasure.blobs)) - found.spilled
        await self._remove_blobs([*named, *found.spilled], tree, spare_young=erasure.expired)
        await self._erasure.purge(tree, before)

    async def _remove_postponed(self) -> None:
        now = self._clock.now()
        due = [blob for blob, at in self._removals.postponed_blobs.items() if at <= now]
        await self._remove_blobs(due, "", spare_young=True)

    async def _remove_blobs(self, blobs: Iterable[str], tree: str, *, spare_young: bool) -> None:
        """Remove those blobs of a tree that no other tree references."""
        unreferenced = []
        for blob in blobs:
            self._removals.postponed_blobs.pop(blob, None)
            if not await self._index.is_referenced(blob):
                unreferenced.append(blob)
        if not unreferenced:
            return
        judged_at = self._clock.now()
        # Another tree may have been given the same blobs just now.
        await self._read_on()
        awaited = await self._erasure.awaited(tree)
        for blob in unreferenced:
            if blob in awaited or await self._index.is_referenced(blob):
                continue
            spared_since = judged_at - YOUNG_SECONDS if spare_young else None
            if blob in self._in_use() or not await self._erasure.remove_blob(blob, spared_since):
                self._removals.postponed_blobs[blob] = judged_at + YOUNG_SECONDS

    # --- the record

    async def _record(self, tree: str, expired: bool) -> tuple[int, Erased]:
        """Write the record that the tree is erased; returns another gateway's when that was first."""
        while True:
            known = await self._index.last_of(tree)
            found = await self._erasure.lifecycle(tree)
            fence, last = found if found is not None else (0, None)
            if isinstance(last, Erased) and known and known < fence:
                return fence, last
            lifecycle = Erased(id=f"{tree}:erased", tree=tree, run=tree, at=self._clock.now(), expired=expired)
            try:
                return await self._erasure.record(lifecycle, fence), lifecycle
            except Fenced:
                continue
