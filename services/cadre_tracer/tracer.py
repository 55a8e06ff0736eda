"""Follow the journals of every shard, export the spans that are complete with each entry, and ack what was exported."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.metrics import queue_samples
from cadre.adapters.nats.queues.queue import NatsDelivery, Queue, ShardQueues
from cadre.adapters.nats.reading.history import History
from cadre.adapters.nats.streams import jetstream
from cadre.adapters.otlp import FIRST_PAUSE, LONGEST_PAUSE, Sent, SpanSender
from cadre.delivery.codec import decode, unpack_entry
from cadre.delivery.fair_limiter import FairLimiter
from cadre.errors import BlobMissing, BusUnavailable, NewerSchema, RetryableError, UnreadableMessage
from cadre.journal.entry import Entry
from cadre.ports import Stored
from cadre.protocol.messages import Erased, Lifecycle
from cadre.protocol.topology import tree_of
from cadre.recent import Recent
from cadre.service.health import AsgiApp
from cadre.service.platform import Platform
from cadre.settings import TracingSettings
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre.telemetry.tracing.projection import Projection
from cadre.telemetry.tracing.spans import SpanRecord
from cadre_tracer.trees import Sampling, WholeTrees

log = logging.getLogger("cadre.tracer")

AT_ONCE = 256
"""Entries in progress: those that cannot be exported at the moment wait in their stream, not here."""

PATIENT_DELIVERIES = 20
"""Deliveries after which an entry is taken without earlier entries that cannot be read."""

NEWER_PAUSE_SECONDS = 10.0
"""Seconds before what only a newer tracer can read is delivered again."""

_LOOK_SECONDS = 0.1
"""Seconds between two looks at how far the journals' end is."""

MAX_RUNS = 4096

MAX_RUNS_WITH_CONTENT = 512
"""The same when each holds what its model reads."""


class JournalQueue(Queue):
    """A consumer of one shard's journal entries: in no hurry while it follows them, and quick to reach their end.

    They never become dead letters, which a person might send into the journal again.
    """

    most_deliveries = -1
    rests = 0.9

    async def hurry(self) -> int:
        """Comes for more without a rest from now on; returns the sequence at which the stream ends at the moment.

        Raises BusUnavailable.
        """
        self.rests = self._rests_until = 0.0
        await self._pull()
        end: int = (await self._ask(f"STREAM.INFO.{self._stream}"))["state"]["last_seq"]
        return end

    async def has_acked(self, end: int) -> bool:
        """Return whether all entries up to this sequence are acked, by any tracer. Raise BusUnavailable."""
        info = await self._ask(f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        floor: int = info["ack_floor"]["stream_seq"]
        # What stands behind the last entry is no tracer's matter, and never acked.
        return floor >= end or not info["num_pending"] + info["num_ack_pending"]

    async def _ask(self, what: str) -> dict[str, Any]:
        return await jetstream.ask(self._nc, f"asking for {self._stream}", what)


class Tracer:
    """The tracer as the part of its process that the frame runs. Runs do not know of it and never wait for it."""

    app: AsgiApp | None = None

    def __init__(self, platform: Platform, settings: TracingSettings, *, imported: bool) -> None:
        self._platform = platform
        self._settings = settings
        self._imported = imported
        history = History(platform.nc, platform.topology, platform.blobs)
        self._sampling = Sampling(history, settings)
        self._projections = Projections(history, content=settings.content)
        self._erasure = NatsErasure(platform.nc, platform.topology, platform.blobs)
        batch = BATCH_WITH_CONTENT if settings.content else BATCH
        self._exporter = Exporter(SpanSender(settings), batch, self._was_erased)
        self._trees: WholeTrees | None = None
        if settings.send == "ended":
            self._trees = WholeTrees(history, self._exporter.export, content=settings.content)
        self._queues: ShardQueues[JournalQueue] | None = None

    async def start(self) -> None:
        """Begin to follow the journals. Raises BusUnavailable, SetupError."""
        self._exporter.start()
        platform, topology = self._platform, self._platform.topology
        limiter = FairLimiter(AT_ONCE, queues=topology.shards)
        consumer, filter_of = topology.tracer_consumer(), topology.journals_of_shard
        self._queues = await ShardQueues(
            platform.nc, platform.shards, consumer, filter_of, self.handle, limiter, JournalQueue
        ).start()
        log.info("traces go to %s", self._settings.endpoint)

    def unready(self) -> str | None:
        """Return why no spans are exported at the moment; None when they are."""
        if not self._exporter.is_running:
            return "exporting has stopped"
        return None if self._queues is not None else "starting"

    def about(self) -> dict[str, str]:
        """Return what /readyz says besides: how many spans have arrived, and how the receiver is."""
        return {
            "exported": str(self._exporter.exported),
            "refused": str(self._exporter.refused),
            "receiver": "does not take spans at the moment" if self._exporter.failing else "well",
        }

    async def samples(self) -> list[Sample]:
        """Return the metrics of its queues and of the exported spans."""
        spans = {"exported": self._exporter.exported, "refused": self._exporter.refused}
        return [
            *queue_samples(self._queues.queues if self._queues is not None else []),
            *(Sample(names.TRACER_SPANS, n, {names.OUTCOME: outcome}) for outcome, n in spans.items()),
            Sample(names.TRACER_FAILING, int(self._exporter.failing)),
        ]

    async def drain(self, grace: float) -> None:
        """Export what the journals hold by now. What the receiver does not take in time goes back to the streams; for
        one that is known to be down nothing waits."""
        until = time.monotonic() + grace
        try:
            async with asyncio.timeout(grace):
                await self._reach_the_end()
        except (TimeoutError, RetryableError) as error:
            log.warning("not all that the journals hold was exported: %s", str(error) or f"not within {grace:g} s")
        within = 0.0 if self._exporter.failing else max(0.0, until - time.monotonic())
        if self._queues is not None:
            await self._queues.drain(within)
        await self._exporter.stop()

    async def _reach_the_end(self) -> None:
        """Export all that the journals hold now: a deployment that is stopped may lose them next."""
        if self._queues is None or not self._platform.nc.is_connected:
            return
        left = [(queue, await queue.hurry()) for queue in self._queues.queues]
        while left and self._exporter.is_running and not self._exporter.failing:
            left = [(queue, end) for queue, end in left if not await queue.has_acked(end)]
            if left:
                await asyncio.sleep(_LOOK_SECONDS)

    async def handle(self, delivery: NatsDelivery) -> None:
        """Ack once the receiver has the spans that end with the entry. Raises RetryableError: deliver again."""
        try:
            if self._platform.topology.is_lifecycle(delivery.subject):
                self._take_lifecycle(delivery)
            elif self._imported or not delivery.imported:
                await self._take_entry(delivery)
            await delivery.ack()
        except NewerSchema as newer:
            # Another replica may be newer already, or this one will be soon. No entry is ever a dead letter.
            log.warning("%s is left to a newer tracer: %s", delivery.subject, newer)
            await delivery.nak(NEWER_PAUSE_SECONDS)

    async def _take_entry(self, delivery: NatsDelivery) -> None:
        """Export what is complete with an entry; nothing when it cannot be read."""
        try:
            entry = await unpack_entry(delivery.data, self._platform.blobs)
        except NewerSchema:
            raise
        except BlobMissing:
            return  # its tree is being erased, blobs first
        except UnreadableMessage as error:
            log.error("entry %d on %s has no spans: %s", delivery.seq, delivery.subject, error)
            return
        stored, patient = Stored(delivery.seq, entry), delivery.deliveries < PATIENT_DELIVERIES
        try:
            if not await self._sampling.takes(entry):
                return
            if self._trees is not None:
                await self._trees.take(stored, patient=patient)
            else:
                await self._exporter.export(await self._projections.spans(stored, patient=patient))
        except BusUnavailable:
            if not await self._is_erased(stored):
                raise

    async def _is_erased(self, stored: Stored) -> bool:
        """Return whether the entries before this one are gone because their tree is."""
        lifecycle = await self._erasure.lifecycle(stored.entry.tree)
        return lifecycle is not None and isinstance(lifecycle[1], Erased) and lifecycle[0] > stored.seq

    async def _was_erased(self, tree: str) -> bool:
        """Return whether the tree is known to be erased."""
        try:
            lifecycle = await self._erasure.lifecycle(tree)
        except RetryableError as error:
            log.debug("whether tree %s was erased is not known: %s", tree, error)
            return False
        return lifecycle is not None and isinstance(lifecycle[1], Erased)

    def _take_lifecycle(self, delivery: NatsDelivery) -> None:
        try:
            lifecycle: Lifecycle = decode(delivery.data, Lifecycle)
        except UnreadableMessage as error:
            log.error("message %d on %s left out: %s", delivery.seq, delivery.subject, error)
            return
        if isinstance(lifecycle, Erased):
            self._projections.forget_tree(lifecycle.tree)
            if self._trees is not None:
                self._trees.forget(lifecycle.tree)


class Journals(Protocol):
    """The journals of runs, from any reader."""

    async def read_run(self, tree: str, run: str, after: int = 0) -> list[Stored]:
        """Return the run's entries behind sequence `after`; the newest ones may still be missing. Raises
        BusUnavailable."""
        ...


class _FoldedRun:
    """A run, folded up to the entry at `seq`."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        self.seq = 0
        self.lock = asyncio.Lock()

    def apply(self, stored: Stored) -> list[SpanRecord]:
        self.seq = stored.seq
        return self.projection.apply(stored.entry)


class Projections:
    """Keeps the projections of at most MAX_RUNS runs, forgetting the least recently used: journals give them back."""

    def __init__(self, journals: Journals, *, content: bool) -> None:
        self._journals = journals
        self._content = content
        self._held = Recent[str, _FoldedRun](MAX_RUNS_WITH_CONTENT if content else MAX_RUNS)

    async def spans(self, stored: Stored, *, patient: bool = True) -> list[SpanRecord]:
        """Return the spans that end with this entry: the same ones whenever and wherever they are asked for.

        Raises BusUnavailable, with `patient` also while entries before this one cannot be read yet.
        """
        entry = stored.entry
        held = self._get(entry)
        async with held.lock:
            if entry.n <= held.projection.entries:
                # It comes again: folded again up to it.
                held = _FoldedRun(self._new(entry))
            if entry.n > held.projection.entries + 1:
                await self._catch_up(held, stored)
            if patient and entry.n != held.projection.entries + 1:
                missing = f"entry {held.projection.entries + 1} is not there yet"
                raise BusUnavailable(f"reading run {entry.run}", missing)
            return held.apply(stored)

    def forget_tree(self, tree: str) -> None:
        """Forget the runs of a tree that was erased."""
        for run in [run for run, held in self._held.items() if held.projection.tree == tree]:
            del self._held[run]

    def _get(self, entry: Entry) -> _FoldedRun:
        held = self._held.get(entry.run) or _FoldedRun(self._new(entry))
        self._held[entry.run] = held
        return held

    def _new(self, entry: Entry) -> Projection:
        return Projection(entry.tree, entry.run, content=self._content)

    async def _catch_up(self, held: _FoldedRun, stored: Stored) -> None:
        """Apply the entries before this one; their spans are exported by the tracers that were delivered those."""
        entry = stored.entry
        for one in await self._journals.read_run(entry.tree, entry.run, held.seq):
            if one.seq >= stored.seq:
                return
            held.apply(one)


BATCH = 256
"""Spans per request."""

BATCH_WITH_CONTENT = 64
"""The same when they hold what people and models wrote: receivers take some megabytes at once."""

LINGER_SECONDS = 0.1
"""Seconds that a batch waits for more."""

STALE_SECONDS = 5.0
"""Seconds that spans may wait and still be sent without a look at their tree."""


class Sender(Protocol):
    """A connection to the receiver: see `cadre.adapters.otlp.SpanSender`."""

    async def send(self, spans: list[SpanRecord]) -> Sent: ...

    @property
    def failure(self) -> str: ...

    def close(self) -> None: ...


class _Item(NamedTuple):
    """Spans of one tree: they are sent together or not at all."""

    spans: list[SpanRecord]
    arrived: asyncio.Future[None]
    since: float
    """The time when they were handed in, by the monotonic clock."""

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
        """Begin to send, in a separate task."""
        self._task = asyncio.create_task(self._run(), name="exporter")
        self._task.add_done_callback(_log_failure)

    async def export(self, spans: list[SpanRecord]) -> None:
        """Return when the receiver has the spans, or has refused them for good."""
        now, loop = time.monotonic(), asyncio.get_running_loop()
        items = [
            _Item(spans[at : at + self._batch], loop.create_future(), now) for at in range(0, len(spans), self._batch)
        ]
        self._waiting.extend(items)
        self._wake.set()
        for item in items:
            await item.arrived

    @property
    def is_running(self) -> bool:
        """Return whether batches are being sent: not before `start`, and not after an error of this program."""
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        """End the sending; what still waits is not sent."""
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
                    log.warning("the receiver of traces has a problem (%s): trying again", self._sender.failure)
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
