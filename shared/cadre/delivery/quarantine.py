"""Telling the message that kills its workers from its neighbours, which only died with it: by trial.

How often a message was delivered proves nothing: it comes back from every worker that was restarted, and
with every message that killed the process they shared. So one that comes back too often is tried: a mark in
the stream says so while its handling is young, and should the process die, the next one knows whom to
suspect. At first all suspects of a process are tried together, since mostly none of them did it. Those whose
process died meanwhile are tried alone. A message is poison when that killed its process twice, when many
processes died later on in its handling, or when the handling raises, again and again, what none should.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from cadre.delivery.retry import retry
from cadre.errors import CadreError, Fenced
from cadre.ports import Clock, Delivery, Mark, Marks

log = logging.getLogger("cadre.trial")

SUSPECT_AFTER = 5
"""Deliveries after which a message is tried. Up to then nothing is written for it."""

TRIAL = 5.0
"""Seconds that a handling must live: what kills its process mostly does so at once."""

ALONE = 2
"""Processes that may die while a message is tried alone."""

LATE = 8
"""Processes that may die in its handling after it has outlived its trial."""

RAISED = 3
"""Trials in which its handling may raise what none should."""

_ENDED_WITHIN = 2.0


class Trials:
    """The suspects of one process."""

    def __init__(self, marks: Marks, clock: Clock) -> None:
        self._marks = marks
        self._clock = clock
        self._alone = asyncio.Lock()
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def hear(self, delivery: Delivery, tree: str, handle: Callable[[], Awaitable[None]]) -> str | None:
        """Has the delivery handled; returns why its message is poison, None when it is not.

        Raises what `handle` raises.
        """
        if delivery.deliveries <= SUSPECT_AFTER:
            if delivery.deliveries > 1:
                # It may have killed a process itself: whoever is tried alone must not be blamed for it.
                await self._quiet.wait()
            await handle()
            return None
        while True:
            found = await retry(lambda: self._marks.read(tree, delivery.seq), self._clock.sleep)
            mark, fence = found or (Mark(seq=delivery.seq), 0)
            if guilt := _guilt(mark):
                return guilt
            trial = await self._trial(delivery, tree, mark)
            if trial is None:
                await delivery.nak(
                    TRIAL
                )  # others are in line: it gives its place at work to what is no suspect
                return None
            try:
                await trial.begin(fence)
            except Fenced:
                continue  # another worker tries it too: what came of that is to be read first
            return await trial.of(handle)

    async def acquit(self, delivery: Delivery, tree: str) -> None:
        """Forgets what was held against a message that will not be delivered any more."""
        if delivery.deliveries > SUSPECT_AFTER:
            await retry(lambda: self._marks.clear(tree, delivery.seq), self._clock.sleep)

    async def _trial(self, delivery: Delivery, tree: str, mark: Mark) -> _Trial | None:
        """None when others are tried alone for so long that it should not wait for its turn."""
        if not (mark.together or mark.alone):
            return _Trial(self._marks, self._clock, tree, replace(mark, together=True), _nothing)
        try:
            async with asyncio.timeout(TRIAL):
                await self._alone.acquire()
        except TimeoutError:
            return None
        self._quiet.clear()
        log.warning("%s is tried alone: a process died when it was tried", delivery.subject)

        def release() -> None:
            self._alone.release()
            self._quiet.set()

        return _Trial(
            self._marks, self._clock, tree, replace(mark, together=False, alone=mark.alone + 1), release
        )


class _Trial:
    """The handling of one suspect. `release` is called once, when others may be tried alone."""

    def __init__(
        self, marks: Marks, clock: Clock, tree: str, mark: Mark, release: Callable[[], None]
    ) -> None:
        self._marks = marks
        self._clock = clock
        self._tree = tree
        self._mark = mark
        self._release: Callable[[], None] | None = release
        self._fence = 0
        self._outlived = False

    async def begin(self, fence: int) -> None:
        """Raises Fenced when the mark at `fence` is not the last one any more; then it is over."""
        try:
            await self._write(self._mark, fence)
        except BaseException:
            self._let_others()
            raise

    async def of(self, handle: Callable[[], Awaitable[None]]) -> str | None:
        """Why the message is poison, None when it is not. Raises what `handle` raises."""
        window = asyncio.create_task(self._outlive(), name=f"trial of {self._mark.seq}")
        left: Mark | None = None
        try:
            await handle()
        except CadreError:
            raise
        except Exception as error:
            left = replace(self._mark, together=False, alone=0, raised=self._mark.raised + 1)
            if left.raised >= RAISED:
                return f"handling it raised {type(error).__name__}: {error}"
            raise
        finally:
            self._let_others()
            await self._end(window, left)
        return None

    async def _outlive(self) -> None:
        await self._clock.sleep(TRIAL)
        self._let_others()
        self._outlived = True
        try:
            await self._write(
                replace(self._mark, together=False, alone=0, late=self._mark.late + 1), self._fence
            )
        except Fenced:
            log.info("another worker tries message %d meanwhile", self._mark.seq)

    async def _end(self, window: asyncio.Task[None], left: Mark | None) -> None:
        """Soon, also while the process is told to stop: a mark that stays only counts as one death too many."""
        if not self._outlived:
            window.cancel()
        try:
            async with asyncio.timeout(_ENDED_WITHIN):
                await asyncio.wait({window})
                if left is None:
                    await retry(lambda: self._marks.clear(self._tree, self._mark.seq), self._clock.sleep)
                else:
                    await self._write(left, self._fence)
        except (TimeoutError, Fenced) as error:
            log.info("mark of message %d left as it is: %s", self._mark.seq, error or "no answer in time")

    async def _write(self, mark: Mark, fence: int) -> None:
        self._fence = await retry(lambda: self._marks.write(self._tree, mark, fence), self._clock.sleep)

    def _let_others(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()


def _guilt(mark: Mark) -> str | None:
    if mark.alone >= ALONE:
        return f"{mark.alone} processes died while they handled it alone"
    if mark.late >= LATE:
        return f"{mark.late} processes died in the course of its handling"
    if mark.raised >= RAISED:
        return f"handling it failed in {mark.raised} trials"
    return None


def _nothing() -> None:
    """Tried together with others, it holds up nobody."""
