"""Sends spans to the receiver in batches; each caller waits until its own have arrived."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from cadre.adapters.otlp import FIRST_PAUSE, LONGEST_PAUSE, Sent
from cadre.protocol.topology import tree_of
from cadre.telemetry.tracing.spans import SpanRecord

log = logging.getLogger("cadre.tracer")

BATCH = 256
"""Spans per request."""

BATCH_WITH_CONTENT = 64
"""The same when they hold what people and models wrote: receivers take some megabytes at once."""

LINGER_SECONDS = 0.1
"""How long a batch waits for more."""

STALE_SECONDS = 5.0
"""How long spans may wait and still be sent without a look at their tree."""


class Sender(Protocol):
    """A connection to the receiver: see `cadre.adapters.otlp.SpanSender`."""

    async def send(self, spans: list[SpanRecord]) -> Sent: ...

    @property
    def failure(self) -> str: ...

    def close(self) -> None: ...


class _Item(NamedTuple):
    """Spans that end with one entry: they are sent together or not at all."""

    spans: list[SpanRecord]
    arrived: asyncio.Future[None]
    since: float
    """When they were handed in, by the monotonic clock."""

    @property
    def tree(self) -> str:
        return tree_of(self.spans[0].run)


class Exporter:
    """Sends one batch after the other; one that does not arrive is sent again, for ever."""

    def __init__(self, sender: Sender, batch: int, is_erased: Callable[[str], Awaitable[bool]]) -> None:
        """`is_erased` says whether a tree has been removed meanwhile: of that nothing more is sent."""
        self._sender = sender
        self._is_erased = is_erased
        self._batch = batch
        self._waiting: deque[_Item] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.exported = 0
        """Spans that have arrived."""
        self.refused = 0
        """Spans that the receiver would not have."""
        self.failing = False
        """The last batch did not arrive."""
        self._warned = ""

    def start(self) -> None:
        """Begins to send, in a task of its own."""
        self._task = asyncio.create_task(self._run(), name="exporter")
        self._task.add_done_callback(_log_failure)

    async def export(self, spans: list[SpanRecord]) -> None:
        """Returns when the receiver has the spans, or has refused them for good."""
        if not spans:
            return
        item = _Item(spans, asyncio.get_running_loop().create_future(), time.monotonic())
        self._waiting.append(item)
        self._wake.set()
        await item.arrived

    @property
    def is_running(self) -> bool:
        """Whether batches are being sent: not before `start`, and not after an error of this program."""
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        """Ends the sending; what still waits is not sent."""
        self._sender.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(LINGER_SECONDS)
            while self._waiting:
                await self._deliver(self._next())

    def _next(self) -> list[_Item]:
        """As many items as make a batch, without those whose callers have gone."""
        items: list[_Item] = []
        spans = 0
        while self._waiting and (not items or spans + len(self._waiting[0].spans) <= self._batch):
            item = self._waiting.popleft()
            if not item.arrived.cancelled():
                items.append(item)
                spans += len(item.spans)
        return items

    async def _deliver(self, items: list[_Item]) -> None:
        pause = FIRST_PAUSE
        while items := await self._still_wanted(items):
            sent = await self._sender.send([span for item in items for span in item.spans])
            if sent.outcome == "later":
                if not self.failing:
                    log.warning(
                        "the receiver of traces has a problem (%s): trying again", self._sender.failure
                    )
                self.failing = True
                await asyncio.sleep(max(pause, sent.retry_after))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            if self.failing:
                log.info("the receiver of traces answers again")
            self.failing = False
            if sent.outcome == "refused" and len(items) > 1:
                for item in items:
                    await self._deliver([item])
                return
            self._settle(items, sent)
            return

    async def _still_wanted(self, items: list[_Item]) -> list[_Item]:
        """Without those whose handlers have gone, or whose tree was erased while they waited for the receiver."""
        stale = time.monotonic() - STALE_SECONDS
        old = {item.tree for item in items if item.since < stale}
        erased = {tree for tree in old if await self._is_erased(tree)}
        for item in items:
            if item.tree in erased and not item.arrived.done():
                item.arrived.set_result(None)
        return [item for item in items if not item.arrived.done()]

    def _settle(self, items: list[_Item], sent: Sent) -> None:
        count = sum(len(item.spans) for item in items)
        lost = count if sent.outcome == "refused" else min(sent.rejected, count)
        self.refused += lost
        self.exported += count - lost
        if lost:
            runs = ", ".join(sorted({item.spans[0].run for item in items}))
            log.error(
                "%d of %d spans of runs %s are lost: the receiver refuses them %s",
                lost,
                count,
                runs,
                sent.message,
            )
        elif sent.message and sent.message != self._warned:
            self._warned = sent.message
            log.warning("the receiver of traces has taken the spans and warns: %s", sent.message)
        for item in items:
            if not item.arrived.done():
                item.arrived.set_result(None)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("exporting has stopped: this process must be started again", exc_info=error)
