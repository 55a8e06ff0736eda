"""Removes runs: each tree some time after its end, at once when told to, and what comes late for one that is gone.

Every gateway has a janitor and all of them do the same: whoever is first records the tree's fate, the others
learn of it and see to it that nothing is left, should the first one die over it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from cadre.adapters.nats.erasure import REMEMBERED, Belongings
from cadre.adapters.nats.objects.blobs import YOUNG
from cadre.errors import CadreError, Fenced
from cadre.ports import Clock
from cadre.protocol.messages import Erased, Fate
from cadre_gateway.index.run_list import Index
from cadre_gateway.retention.ledger import Erasing, Ledger

log = logging.getLogger("cadre.janitor")


class Erasure(Protocol):
    """What a janitor needs of the world: see NatsErasure. Every method raises RetryableError."""

    async def fate(self, tree: str) -> tuple[int, Fate] | None: ...
    async def record(self, fate: Fate, fence: int) -> int: ...
    async def leave_session(self, agent: str, session: str, run: str) -> None: ...
    async def belongings(self, tree: str, before: int) -> Belongings: ...
    async def has_task(self, tree: str) -> bool: ...
    async def awaited(self, besides: str) -> set[str]: ...
    async def drop_letters(self, tree: str, messages: set[int]) -> None: ...
    async def remove_blob(self, ref: str, unless_put_since: float | None) -> bool: ...
    async def purge(self, tree: str, before: int) -> None: ...
    async def sweep(self) -> None: ...


_SHARE = 20
"""Removing takes at most one part in this many of the time, so that the streams are free for work."""

_AFTER_FAILURE = 5.0
_GRACE = 10.0
"""Seconds that whoever erased a tree has to remove it before others look after it."""

_BEGINS_WITHIN = 3600.0
"""Seconds after which the files of a run that has not begun are nobody's, unless its task is waiting."""

_SWEEP_EVERY = 3600.0
"""Seconds between two looks for what writers of blobs have left behind when they were killed."""

_LONGEST_WAIT = 3600.0
"""Seconds after which the time of day is looked at again: it may have been set."""

Work = Callable[[], Awaitable[None]]


class Janitor:
    """`keep` is in seconds, 0 for ever; `changed` is called whenever the ledger has changed by it. `read_on` returns
    once the ledger knows what is in the streams at this moment, or raises RetryableError."""

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        ledger: Ledger,
        index: Index,
        erasure: Erasure,
        clock: Clock,
        *,
        keep: float,
        changed: Callable[[], None],
        read_on: Callable[[], Awaitable[None]],
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._erasure = erasure
        self._clock = clock
        self._keep = keep
        self._changed = changed
        self._read_on = read_on
        self._news = asyncio.Event()
        self._sweep_at = 0.0

    def wake(self) -> None:
        """Something may have become due."""
        self._news.set()

    async def run(self) -> None:
        """Removes what is due, one thing after the other, and sleeps until the next is."""
        failures = 0
        while True:
            self._news.clear()
            now = self._clock.now()
            self._ledger.forget_tombs(now - REMEMBERED)
            due, work = self._next()
            if work is None or due > now:
                await self._wait(min(due - now, _LONGEST_WAIT))
                continue
            try:
                await work()
            except CadreError as error:
                failures += 1
                pause = min(_AFTER_FAILURE * failures, _LONGEST_WAIT)
                log.warning("removing goes on in %g s: %s", pause, error)
                await self._clock.sleep(pause)
            else:
                failures = 0
                await self._clock.sleep((self._clock.now() - now) * (_SHARE - 1))

    async def erase(self, tree: str, *, expired: bool = False) -> None:
        """Removes a tree that has ended: record, blobs, messages, and its place in lists and sessions.

        Of one that has `expired`, blobs that were put within the last hour go later. Raises RetryableError: once the
        record is written the removal goes on by itself.
        """
        root = self._index.get(tree, tree)
        if root is not None and root.session is not None:
            await self._erasure.leave_session(root.agent, root.session, tree)
        self.learn(*await self._record(tree, expired))
        erasing = self._ledger.erasing.get(tree)
        if erasing is not None:
            await self._clear(erasing)

    def learn(self, seq: int, fate: Erased) -> None:
        """A tree was erased, by whomever, with the record at `seq`."""
        if self._ledger.erased(seq, fate, fate.at + _GRACE):
            self._index.drop(fate.tree)
            self._changed()
            self.wake()

    # --- what is next

    def _next(self) -> tuple[float, Work | None]:
        """What is to be done next, and when it is due."""
        ledger = self._ledger
        found: list[tuple[float, Work | None]] = [(self._sweep_at, self._sweep)]
        if ledger.ghosts:
            found.append((0.0, self._lay_ghost))
        if ledger.erasing:
            first = min(ledger.erasing.values(), key=lambda one: one.due)
            found.append((first.due, lambda: self._clear(first)))
        if ledger.left:
            found.append((min(ledger.left.values()), self._remove_left))
        if ledger.unbegun:
            tree, since = min(ledger.unbegun.items(), key=lambda one: one[1])
            found.append((since + _BEGINS_WITHIN, lambda: self._lay_unbegun(tree)))
        ended = ledger.next_end() if self._keep else None
        if ended is not None and ended.ended_at is not None:
            tree = ended.tree
            found.append((ended.ended_at + self._keep, lambda: self._expire(tree)))
        return min(found, key=lambda one: one[0])

    async def _wait(self, seconds: float) -> None:
        asleep = asyncio.ensure_future(self._clock.sleep(seconds))
        woken = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({asleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asleep.cancel()
            woken.cancel()

    # --- what there is to do

    async def _expire(self, tree: str) -> None:
        await self.erase(tree, expired=True)
        log.info("run %s is removed: it ended %g days ago or more", tree, self._keep / 86400)

    async def _sweep(self) -> None:
        # First, so that a sweep that fails keeps nothing else waiting.
        self._sweep_at = self._clock.now() + _SWEEP_EVERY
        await self._erasure.sweep()

    async def _lay_ghost(self) -> None:
        """What came for a tree that is gone is removed like the tree itself."""
        tree, seq = next(iter(self._ledger.ghosts.items()))
        if not await self._erasure.has_task(tree):
            log.info("run %s is gone: what came late for it is removed", tree)
            await self._remove(Erasing(tree, seq + 1, 0.0, True))
        if self._ledger.ghosts.get(tree) == seq:
            del self._ledger.ghosts[tree]
            self._changed()

    async def _lay_unbegun(self, tree: str) -> None:
        """Files that were put down for a run whose task never came."""
        holding = self._ledger.holding(tree)
        if holding is not None and not await self._erasure.has_task(tree):
            log.info("run %s has files and was never begun: they are removed", tree)
            blobs = self._ledger.forget(tree)
            self._ledger.erasing[tree] = Erasing(tree, holding.last + 1, 0.0, True, blobs)
        self._ledger.unbegun.pop(tree, None)
        self._changed()

    async def _clear(self, erasing: Erasing) -> None:
        await self._remove(erasing)
        if self._ledger.erasing.get(erasing.tree) is erasing:
            del self._ledger.erasing[erasing.tree]
            self._changed()

    async def _remove(self, erasing: Erasing) -> None:
        """Blobs before the messages that name them: whoever repeats this must find their names."""
        tree, before = erasing.tree, erasing.before
        found = await self._erasure.belongings(tree, before)
        if not found.messages:
            return
        await self._erasure.drop_letters(tree, found.messages)
        named = (found.named | set(erasing.blobs)) - found.spilled
        await self._remove_blobs([*named, *found.spilled], tree, spare_young=erasing.expired)
        await self._erasure.purge(tree, before)

    async def _remove_left(self) -> None:
        now = self._clock.now()
        due = [blob for blob, at in self._ledger.left.items() if at <= now]
        await self._remove_blobs(due, "", spare_young=True)

    async def _remove_blobs(self, blobs: Iterable[str], tree: str, *, spare_young: bool) -> None:
        """Of blobs that a tree named, those that no other tree does."""
        unnamed = []
        for blob in blobs:
            self._ledger.left.pop(blob, None)
            if not self._ledger.is_named(blob):
                unnamed.append(blob)
        if not unnamed:
            return
        judged = self._clock.now()
        # Another tree may have been given the same blobs just now.
        await self._read_on()
        awaited = await self._erasure.awaited(tree)
        for blob in unnamed:
            if blob in awaited or self._ledger.is_named(blob):
                continue
            if not await self._erasure.remove_blob(blob, judged - YOUNG if spare_young else None):
                self._ledger.left[blob] = judged + YOUNG

    # --- the record

    async def _record(self, tree: str, expired: bool) -> tuple[int, Erased]:
        """The record that the tree is erased: another gateway's, when that was first."""
        while True:
            known = self._ledger.holding(tree)
            found = await self._erasure.fate(tree)
            fence, last = found if found is not None else (0, None)
            if isinstance(last, Erased) and known is not None and known.last < fence:
                return fence, last
            fate = Erased(id=f"{tree}:erased", tree=tree, run=tree, at=self._clock.now(), expired=expired)
            try:
                return await self._erasure.record(fate, fence), fate
            except Fenced:
                continue
