"""Find the messages that crash their workers, and distinguish them from messages that were only in the same process.

The number of deliveries proves nothing: a message comes back from every worker that was restarted, and with every
message that crashed the process they shared. So a message that comes back too often is a suspect, and is handled under
observation: a record in the stream says so while its handling is young, and should the process die, the next one
knows whom to suspect. At first all suspects of a process are observed together, since mostly none of them did it.
Those whose process died meanwhile are then handled alone. A message is poison when that crashed its process twice,
when many processes died later on in its handling, or when its handling raises, again and again, what none should.

A handling that hangs counts the same: one that blocks its process has it killed, and one that outlives its time raises
Overdue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from msgspec.structs import replace

from cadre.delivery.deadlines import Deadlines
from cadre.delivery.retry import retry
from cadre.errors import CadreError, Fenced
from cadre.ports import Clock, Delivery, QuarantineRecord, QuarantineStore

log = logging.getLogger("cadre.trial")

SUSPECT_AFTER_DELIVERIES = 5
"""Deliveries after which a message is a suspect. Up to then nothing is written for it."""

SUSPECT_CALL_AFTER_DELIVERIES = 2
"""The same of a tool's call. Each death of its process keeps all tools of that process away for longer, minutes in the
end; and a call that is given up ends no run."""

OBSERVATION_SECONDS = 5.0
"""The time for which a handling is observed: a message that crashes its process mostly does so at once."""

MAX_CRASHES_ALONE = 2
"""Processes that may die while they handle a message alone."""

MAX_LATE_CRASHES = 8
"""Processes that may die in the course of a message's handling, after its observation."""

MAX_FAILURES = 3
"""Observed handlings that may raise what none should."""

_END_SECONDS = 2.0

Handle = Callable[[], Awaitable[None]]


class Overdue(Exception):
    """The handling of a message has outlived its time."""


class Quarantine:
    """The suspects of one process. A handling of any message may take `handler_seconds` (None: as long as it does).
    `suspect_after` is a number of deliveries."""

    def __init__(
        self,
        store: QuarantineStore,
        clock: Clock,
        handler_seconds: float | None = None,
        suspect_after: int = SUSPECT_AFTER_DELIVERIES,
    ) -> None:
        self._store = store
        self._clock = clock
        self._handler_seconds = handler_seconds
        self._suspect_after = suspect_after
        self._deadlines = Deadlines()
        self._alone = asyncio.Lock()
        self._nobody_alone = asyncio.Event()
        self._nobody_alone.set()

    async def attempt(self, delivery: Delivery, handle: Handle) -> str | None:
        """Handle the delivery, under observation if it is a suspect; returns why it is poison, None if it is not.

        A suspect that would have to wait too long is handed back instead. Raises what `handle` raises, and Overdue.
        """
        if delivery.deliveries <= self._suspect_after:
            if delivery.deliveries > 1:
                # It may have crashed a process itself: the suspect that is alone must not be blamed for it.
                await self._nobody_alone.wait()
            await self._in_time(handle)
            return None
        tree, seq = delivery.address.tree, delivery.seq
        while True:
            found = await retry(lambda: self._store.read(tree, seq), self._clock.sleep)
            record, fence = found or (QuarantineRecord(seq=seq), 0)
            if reason := _poison_reason(record):
                return reason
            observation = await self._observation(delivery, record)
            if observation is None:
                # Other suspects are in line: it gives up its place to a message that is not a suspect.
                await delivery.nak(OBSERVATION_SECONDS)
                return None
            try:
                await observation.begin(fence)
            except Fenced:
                continue  # another worker observes it too: what came of that is to be read first
            return await observation.run(lambda: self._in_time(handle))

    async def _in_time(self, handle: Handle) -> None:
        if self._handler_seconds is None:
            await handle()
            return
        task, is_overdue = asyncio.current_task(), False
        assert task is not None
        cancels = task.cancelling()

        def end() -> None:
            nonlocal is_overdue
            is_overdue = True
            task.cancel()

        self._deadlines.add(task, self._handler_seconds, end)
        try:
            await handle()
        except asyncio.CancelledError as error:
            if not is_overdue or task.uncancel() > cancels:
                raise
            raise Overdue(f"it was not done within {self._handler_seconds:g} s") from error
        finally:
            self._deadlines.remove(task)

    async def forget(self, delivery: Delivery) -> None:
        """Remove the record of a message that will not be delivered any more."""
        if delivery.deliveries > self._suspect_after:
            tree, seq = delivery.address.tree, delivery.seq
            await retry(lambda: self._store.clear(tree, seq), self._clock.sleep)

    async def _observation(self, delivery: Delivery, record: QuarantineRecord) -> _Observation | None:
        """Return None when others are handled alone for so long that it should not wait for its turn."""
        tree, release = delivery.address.tree, ExitStack()
        if not (record.in_group or record.attempts_alone):
            return _Observation(self._store, self._clock, tree, replace(record, in_group=True), release)
        try:
            async with asyncio.timeout(OBSERVATION_SECONDS):
                await self._alone.acquire()
        except TimeoutError:
            return None
        self._nobody_alone.clear()
        release.callback(self._nobody_alone.set)
        release.callback(self._alone.release)
        log.warning("%s is tried alone: a process died when it was tried", delivery.subject)
        alone = replace(record, in_group=False, attempts_alone=record.attempts_alone + 1)
        return _Observation(self._store, self._clock, tree, alone, release)


class _Observation:
    """The handling of one suspect. Closing `release` lets other suspects be handled alone."""

    def __init__(
        self, store: QuarantineStore, clock: Clock, tree: str, record: QuarantineRecord, release: ExitStack
    ) -> None:
        self._store = store
        self._clock = clock
        self._tree = tree
        self._record = record
        self._release = release
        self._fence = 0
        self._survived = False

    async def begin(self, fence: int) -> None:
        """Write the record. Raises Fenced when the one at `fence` is not the last any more; then it is over."""
        try:
            await self._write(self._record, fence)
        except BaseException:
            self._release.close()
            raise

    async def run(self, handle: Handle) -> str | None:
        """Return why the message is poison, None when it is not. Raises what `handle` raises."""
        window = asyncio.create_task(self._survive(), name=f"trial of {self._record.seq}")
        left: QuarantineRecord | None = None
        try:
            await handle()
        except CadreError:
            raise
        except Exception as error:
            failures = self._record.failures + 1
            left = replace(self._record, in_group=False, attempts_alone=0, failures=failures)
            if failures >= MAX_FAILURES:
                return f"handling it raised {type(error).__name__}: {error}"
            raise
        finally:
            self._release.close()
            await self._end(window, left)
        return None

    async def _survive(self) -> None:
        await self._clock.sleep(OBSERVATION_SECONDS)
        self._release.close()
        self._survived = True
        record = self._record
        try:
            # Should the process die from now on, this counts it; else the record is cleared in the end.
            late = replace(record, in_group=False, attempts_alone=0, late_crashes=record.late_crashes + 1)
            await self._write(late, self._fence)
        except Fenced:
            log.info("another worker tries message %d meanwhile", record.seq)

    async def _end(self, window: asyncio.Task[None], left: QuarantineRecord | None) -> None:
        """Clear the record or leave `left`, within a short time even while the process is stopping.

        A record that stays only counts as one crash too many.
        """
        if not self._survived:
            window.cancel()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await asyncio.wait({window})
                if left is None:
                    seq = self._record.seq
                    await retry(lambda: self._store.clear(self._tree, seq), self._clock.sleep)
                else:
                    await self._write(left, self._fence)
        except (TimeoutError, Fenced) as error:
            log.info("mark of message %d left as it is: %s", self._record.seq, str(error) or "no answer in time")

    async def _write(self, record: QuarantineRecord, fence: int) -> None:
        self._fence = await retry(lambda: self._store.write(self._tree, record, fence), self._clock.sleep)


def _poison_reason(record: QuarantineRecord) -> str | None:
    if record.attempts_alone >= MAX_CRASHES_ALONE:
        return f"{record.attempts_alone} processes died while they handled it alone"
    if record.late_crashes >= MAX_LATE_CRASHES:
        return f"{record.late_crashes} processes died in the course of its handling"
    if record.failures >= MAX_FAILURES:
        return f"handling it failed in {record.failures} trials"
    return None
