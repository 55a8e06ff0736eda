"""One gateway process: its parts put together, its readiness, its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi import FastAPI

from cadre.adapters.nats.archive import NatsArchive
from cadre.adapters.nats.erasure import NatsErasure
from cadre.adapters.nats.history import History
from cadre.adapters.nats.objects.snapshots import NatsImages
from cadre.adapters.nats.sessions import NatsSessions
from cadre.adapters.nats.storage import NatsRoom
from cadre.adapters.nats.tail import Read, Tail, identities
from cadre.adapters.nats.workspace import NatsFileIndex
from cadre.adapters.system_clock import SystemClock
from cadre.delivery.retry import EVERY_SECOND, retry
from cadre.errors import BusUnavailable, SetupError
from cadre.protocol.messages import Erased, Fate
from cadre.service.frame import Platform
from cadre.settings import TracingSettings, read_tracing_settings
from cadre.telemetry.metrics.meters import Sample
from cadre_gateway import metrics
from cadre_gateway.capacity import Capacity
from cadre_gateway.desk import Desk
from cadre_gateway.retention.janitor import Janitor
from cadre_gateway.retention.ledger import Verdict
from cadre_gateway.routes.app import build
from cadre_gateway.snapshot import Keeper, Loaded

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger("cadre.gateway")

_SPANS_WITHIN = 2.0
"""Seconds for the spans of the last requests to be sent."""


class Gateway:
    """The service's Part."""

    def __init__(self, desk: Desk, keeper: Keeper) -> None:
        self._desk = desk
        self._keeper = keeper
        self.app: FastAPI = build(desk)
        self._caught_up = False
        self._tasks = [
            asyncio.create_task(self._save_now_and_then(), name="keeper"),
            asyncio.create_task(self._remove_what_is_due(), name="janitor"),
        ]
        for task in self._tasks:
            task.add_done_callback(_tell_of_failure)

    def unready(self) -> str | None:
        """Why this gateway should get no requests now; None when it should."""
        desk = self._desk
        if desk.draining.is_set():
            return "stopping"
        if not desk.platform.nc.is_connected:
            return "not connected to NATS"
        if failure := desk.tail.failure():
            return f"reading the journals failed: {failure!r}"
        # Once caught up, a reader that starts anew after a pause of the server is no reason to leave.
        if not self._caught_up and (behind := desk.tail.behind()):
            return f"catching up with the journals of {len(behind)} shards"
        self._caught_up = True
        return None

    async def samples(self) -> list[Sample]:
        return await metrics.samples(self._desk)

    async def drain(self, grace: float) -> None:
        """Ends the event streams, saves the list of runs and stops reading."""
        self._desk.drain()
        for task in self._tasks:
            task.cancel()
        if self._keeper.changed:
            try:
                async with asyncio.timeout(max(grace, 1.0)):
                    await self._save()
            except (BusUnavailable, TimeoutError) as error:
                log.warning("list of runs not saved: %s", error or "no time left")
        await self._desk.tail.stop()
        if self._desk.provider is not None:
            from cadre.adapters.otel.otlp_live import shut_down

            await shut_down(self._desk.provider, _SPANS_WITHIN)

    async def _save_now_and_then(self) -> None:
        while True:
            await self._keeper.wait_until_due()
            try:
                await self._save()
            except BusUnavailable as error:
                log.warning("list of runs not saved: %s", error)

    async def _save(self) -> None:
        await self._keeper.save(self._desk.index, self._desk.ledger, self._desk.tail.positions)

    async def _remove_what_is_due(self) -> None:
        # Not before it is known what there is: a tree that was not read yet may name the same blobs.
        await self._desk.tail.caught_up()
        await self._desk.janitor.run()


def _tell_of_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.critical(
            "the %s has stopped: this process must be started again", task.get_name(), exc_info=error
        )


async def start(platform: Platform) -> Gateway:
    """Loads the list of runs and begins to read the journals from there."""
    nc, topology = platform.nc, platform.topology
    tracing = read_tracing_settings()
    streams = await retry(lambda: identities(nc, topology), pauses=EVERY_SECOND, log=log)
    keeper = Keeper(NatsImages(nc, topology), topology, streams)
    loaded = await keeper.load()
    erasure = NatsErasure(nc, topology, platform.blobs)
    janitor = Janitor(
        loaded.ledger,
        loaded.runs,
        erasure,
        SystemClock(),
        keep=platform.settings.keep_days * 86400,
        changed=keeper.hurry,
        read_on=lambda: tail.read_on(),
    )
    reader = _Reader(loaded, janitor, keeper, gone=lambda tree: desk.close(tree))
    tail = Tail(nc, topology, platform.blobs, reader.on_entry, reader.on_fate)
    history = History(nc, topology, platform.blobs)
    desk = Desk(
        platform=platform,
        index=loaded.runs,
        tail=tail,
        history=history,
        sessions=NatsSessions(nc, topology),
        ledger=loaded.ledger,
        janitor=janitor,
        erasure=erasure,
        archive=NatsArchive(nc, topology, platform.blobs, history),
        capacity=Capacity(NatsRoom(nc, topology, platform.settings.max_bytes)),
        files=NatsFileIndex(nc, topology),
        tracing=tracing,
    )
    if tracing.endpoint:
        desk.provider = _provider(platform, tracing)
    tail.start(loaded.positions)
    return Gateway(desk, keeper)


def _provider(platform: Platform, tracing: TracingSettings) -> TracerProvider:
    try:
        from cadre.adapters.otel.otlp_live import live_provider
    except ModuleNotFoundError as error:
        raise SetupError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is set and the Python module {error.name!r} is not installed: install"
            " 'cadre-agents[tracing]', or unset it"
        ) from error
    return live_provider(tracing, "gateway", platform.settings.instance_name())


class _Reader:
    """Hands on what the tail reads; `gone` is called with each tree that was erased."""

    def __init__(self, loaded: Loaded, janitor: Janitor, keeper: Keeper, gone: Callable[[str], None]) -> None:
        self._index, self._ledger, _ = loaded
        self._janitor = janitor
        self._keeper = keeper
        self._gone = gone

    def on_entry(self, read: Read) -> None:
        if read.is_file:
            if self._ledger.take_file(read.seq, read.tree, read.refs, read.at) is Verdict.GHOST:
                self._janitor.wake()
        elif read.stored is None:
            self._ledger.take_unreadable(read.seq, read.tree, read.refs)
        else:
            seq, entry, _ = read.stored
            verdict = self._ledger.take(seq, entry, read.refs, read.at)
            if verdict is Verdict.PART:
                self._index.apply(seq, entry)
            if verdict is Verdict.GHOST or self._ledger.is_next(entry.tree):
                self._janitor.wake()
        self._keeper.note()

    def on_fate(self, seq: int, fate: Fate) -> None:
        if isinstance(fate, Erased):
            self._janitor.learn(seq, fate)
            if self._ledger.is_erased(fate.tree):  # and not begun anew since
                self._gone(fate.tree)
        else:
            self._ledger.imported(fate.tree)
        self._keeper.note()
