"""Run one gateway process: its readiness, its background work, its metrics, its shutdown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastapi import FastAPI

from cadre.adapters.nats.metrics import dead_letter_samples, lag_samples, store_samples
from cadre.adapters.nats.reading.tail import Tail, stream_states
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import BusUnavailable, RetryableError, RunIndexUnavailable
from cadre.service.metrics import READ_WITHIN
from cadre.service.platform import Platform
from cadre.telemetry.metrics import names
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway.automation.background import Automation
from cadre_gateway.doors.open_doors import ListeningDoor
from cadre_gateway.index.lists import open_runs, waiting_calls
from cadre_gateway.index.run_index import RunIndex
from cadre_gateway.index.usage_ledger import Totals, UsageLedger
from cadre_gateway.projector import IndexRebuilder, LedgerSnapshots
from cadre_gateway.retention import Janitor
from cadre_gateway.rollouts.keeper import RolloutKeeper
from cadre_gateway.streaming.follow import LiveFeeds

if TYPE_CHECKING:
    from cadre.adapters.otlp import LiveSpans


log = logging.getLogger("cadre.gateway")

_LEDGER_SECONDS = 30.0
"""Seconds between two saves of the ledger."""

_LITTLE_MESSAGES, _LITTLE_SECONDS = 2_000, 10.0
"""A gateway that lacks no more than that has it in a moment, and takes no requests before: its lists are whole then."""

_SPANS_SECONDS = 2.0
"""Seconds in which the spans of the last requests are to be sent."""

_PART_SECONDS = READ_WITHIN - 0.5


@dataclass(eq=False)
class GatewayService:
    """The service's Part."""

    app: FastAPI
    platform: Platform
    index: RunIndex
    janitor: Janitor
    ledger: UsageLedger
    ledger_snapshots: LedgerSnapshots
    tail: Tail
    """Of the index."""
    feeds: LiveFeeds
    rebuilder: IndexRebuilder
    automation: Automation
    doors: list[ListeningDoor]
    keeper: RolloutKeeper
    live_spans: LiveSpans | None
    """Records the spans of requests; None when nothing records them."""
    started_at: float = field(default_factory=time.monotonic)
    _waits_for_lists: bool = True
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        """Start the background tasks."""
        self.ledger.is_current = False
        self._tasks = [
            asyncio.create_task(self._keep_index(), name="index"),
            asyncio.create_task(self._save_ledger_now_and_then(), name="ledger"),
            asyncio.create_task(self._remove_what_is_due(), name="janitor"),
            asyncio.create_task(self.automation.run(), name="automation"),
            asyncio.create_task(self.tail.failed(), name="tail"),
            asyncio.create_task(self.feeds.tail.failed(), name="live tail"),
            asyncio.create_task(self._note_ledger_caught_up(), name="ledger reading"),
            asyncio.create_task(self._look_after_rollouts(), name="rollouts"),
        ]
        for task in self._tasks:
            task.add_done_callback(_log_failure)
        for door in self.doors:
            door.begin()
        self.platform.shards.follow(self.grow)

    async def grow(self) -> None:
        """Take in what is written to the shards that were added. Raises BusUnavailable."""
        streams = self.ledger_snapshots.streams
        added = await stream_states(self.platform.nc, self.platform.topology, len(streams))
        streams += [one.created for one in added]
        self.ledger.grow(len(streams))
        self.index.grow(streams)
        self.tail.grow()
        self.feeds.tail.grow()

    def unready(self) -> str | None:
        """Return why this gateway should get no requests now; None when it should."""
        if self.feeds.draining:
            return "stopping"
        if not self.platform.nc.is_connected:
            return "not connected to NATS"
        if failure := self.tail.failure() or self.feeds.tail.failure():
            return f"reading the journals failed: {failure!r}"
        if self.index.failure is not None:
            self._waits_for_lists = False  # `about` says it: requests come already, and lists alone need the index
        is_new = self._waits_for_lists and time.monotonic() - self.started_at < _LITTLE_SECONDS
        progress = self.index.progress
        if is_new and progress is not None and progress.of - progress.read <= _LITTLE_MESSAGES:
            return f"catching up with the journals: {progress}"
        return None

    def about(self) -> dict[str, str]:
        """Return what the gateway works without, and the code with which it refuses lists."""
        if self.index.failure is not None:
            return {"index": str(self.index.failure), "index_code": "index-unavailable"}
        if (progress := self.index.progress) is None:
            return {}
        lack = f"lists come when the journals are read: {progress}"
        return {"index": lack, "index_code": "index-building"}

    async def samples(self) -> list[Sample]:
        """Return the metrics of the whole deployment."""
        return await samples(self.platform, self.index, self.ledger.totals)

    async def drain(self, grace: float) -> None:
        """End the event streams and the work in progress, stop reading, and save what was read."""
        self.feeds.drain()
        await asyncio.gather(*(door.drain(grace / 2) for door in self.doors))
        for task in self._tasks:
            task.cancel()
        await self.automation.drain(grace / 2)
        await self.rebuilder.stop()
        await asyncio.gather(self.tail.stop(), self.feeds.tail.stop())
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(max(grace, 1.0)):
                await self.ledger_snapshots.save(self.ledger)
        except (BusUnavailable, TimeoutError) as error:
            log.warning("the ledger is not saved: %s", str(error) or "no time left")
        try:
            await self.index.close()
        except RunIndexUnavailable as error:
            log.warning("the list of runs is not saved: %s", error)
        if self.live_spans is not None:
            await self.live_spans.shut_down(_SPANS_SECONDS)

    async def _keep_index(self) -> None:
        while True:
            catching_up = asyncio.create_task(self._note_index_caught_up(), name="index reading")
            try:
                await self.index.save_now_and_then()
            finally:
                catching_up.cancel()
            # It is not open yet, or not what it was: the journals are read behind the place that it has.
            await self.tail.hold()
            await retry(self.index.open, pauses=EVERY_SECOND, log=log)

    async def _save_ledger_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_LEDGER_SECONDS)
            try:
                await self.ledger_snapshots.save(self.ledger)
            except BusUnavailable as error:
                log.warning("the ledger is not saved: %s", error)

    async def _remove_what_is_due(self) -> None:
        # Not before it is known what there is: a tree that was not read yet may name the same blobs.
        await self.index.whole.wait()
        await self.janitor.run()

    async def _look_after_rollouts(self) -> None:
        # Not before it is known which runs go on: a revision would be taken for drained.
        await self.index.whole.wait()
        await self.keeper.look_after()

    async def _note_index_caught_up(self) -> None:
        await self.tail.caught_up()
        self.index.note_caught_up()

    async def _note_ledger_caught_up(self) -> None:
        await self.feeds.tail.caught_up()
        self.ledger.is_current = True


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical("the %s has stopped: this process must be started again", task.get_name(), exc_info=error)


async def samples(platform: Platform, index: RunIndex, totals: Totals) -> list[Sample]:
    """Return all samples of a gateway as they are now, except those that are not answered in time."""
    agents = set[str]()
    for one in platform.registry.reachable():
        if one.agent is not None:
            agents.add(one.agent.name)
            totals.begin_cost(one.agent.name, one.priced_models)
    nc, topology = platform.nc, platform.topology
    # The last figures of a process are asked for when it has released its index; half an index has wrong ones.
    is_told = index.whole.is_set() and not index.is_closed
    parts = [lag_samples(nc, topology), dead_letter_samples(nc, topology), store_samples(nc, topology)]
    if is_told:
        parts.append(of_runs(index, platform.clock.now()))
    found = await asyncio.gather(*map(_as_far_as_told, parts))
    return [*totals.samples(agents), *(sample for part in found for sample in part)]


async def _as_far_as_told(part: Awaitable[list[Sample]]) -> list[Sample]:
    try:
        async with asyncio.timeout(_PART_SECONDS):
            return await part
    except (RetryableError, TimeoutError) as error:
        log.warning("some metrics cannot be read: %s", str(error) or "no answer in time")
        return []


async def of_runs(index: RunIndex, now: float) -> list[Sample]:
    """Return the samples of the runs that have not ended, and of the calls that wait for a person. Raises
    RunIndexUnavailable."""
    waiting = await waiting_calls(index)
    return [
        *(
            Sample(names.RUNS, one.runs, _attributes(one.agent, one.state, one.waiting_for))
            for one in await open_runs(index)
        ),
        Sample(names.APPROVALS, waiting.calls),
        Sample(names.APPROVALS_OLDEST, max(0.0, now - waiting.oldest) if waiting.oldest is not None else 0.0),
    ]


def _attributes(agent: str, state: str, waiting_for: str | None) -> dict[str, str]:
    found = {names.AGENT: agent, names.STATE: state}
    return found | ({names.WAITING_FOR: waiting_for} if waiting_for else {})
